// The HTTP interface of one environment, as its OpenAPI document tells it, and the way to those of the others.

const base = location.pathname.replace(/\/docs$/, "");
const token = sessionStorage.getItem("tropism.token"); // given to the page at /
const get = async (path) => (await fetch(path, { headers: token ? { authorization: `Bearer ${token}` } : {} })).json();
const make = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });

const [api, listed] = await Promise.all([get(`${base}/openapi.json`), get("/list_environments")]);
document.querySelector("h1").textContent = api.info?.title ?? "Refused";
document.querySelector("#about").textContent = api.info?.description ?? api.message;
for (const { name, url } of api.paths ? listed : []) {
  const link = make("a", name, { href: `${url}/docs` });
  if (name === api.info.title) link.ariaCurrent = "page";
  document.querySelector("nav").append(link);
}
for (const [path, methods] of Object.entries(api.paths ?? {}))
  for (const [method, what] of Object.entries(methods)) {
    const box = document.createElement("details"), line = document.createElement("summary");
    line.append(make("span", method.toUpperCase(), { className: "method" }), make("code", base + path), ` ${what.summary}`);
    const schema = what.requestBody?.content["application/json"].schema;
    if (schema) box.append(make("h3", "Body"), make("pre", JSON.stringify(schema, null, 2)));
    box.prepend(line);
    const [[type, told]] = Object.entries(what.responses["200"].content);
    box.append(make("h3", `Reply, ${type}`), make("pre", JSON.stringify(told.schema, null, 2)));
    document.querySelector("#paths").append(box);
  }
