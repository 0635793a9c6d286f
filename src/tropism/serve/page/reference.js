// The HTTP interface of one environment, from its OpenAPI document, with links to those of the others.

import { get, token } from "./api.js";
import { connect } from "./connect.js";
import { make, root as base } from "./dom.js";

/** The reference at /docs, or /envs/{served}/docs; `chosen` is the environment named in the hash, if any. */
export async function reference(served, chosen) {
  const name = chosen || served;
  const root = name ? `/envs/${encodeURIComponent(name)}` : "";
  const [api, environments] = await Promise.all([get(`${root}/openapi.json`), get("/list_environments")]);
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => described(method, root + path, operation)));
  const element = make(
    "section",
    { class: "reference" },
    menu(environments, api.info.title),
    make("div", { class: "operations" },
      make("h1", { tabindex: -1 }, api.info.title),
      make("p", { class: "lead" }, api.info.description),
      addresses(root),
      connect(api.info.title, Boolean(token.get())),
      operations),
  );
  return { element, close() {} };
}

function menu(environments, current) {
  const links = environments.map(({ name }) =>
    make("a", { href: `${base}/docs#/${encodeURIComponent(name)}`, "aria-current": name === current ? "page" : null }, name));
  const nav = make("nav", { class: "panel", "aria-label": "Environments" }, make("h2", {}, "Environments"), links);
  const marked = links.find((link) => link.hasAttribute("aria-current"));
  if (marked) requestAnimationFrame(() => (nav.scrollLeft = marked.offsetLeft - nav.clientWidth / 3));
  return nav;
}

/** The URLs of this environment. */
function addresses(path) {
  const address = location.origin + base + path;
  const rows = [["HTTP", address], ["WebSocket", `${address.replace(/^http/, "ws")}/ws`], ["MCP", `${address}/mcp`]];
  const cells = rows.flatMap(([kind, each]) => [make("dt", {}, kind), make("dd", {}, each)]);
  return make("dl", { class: "panel addresses" }, cells, make("dt", {}, "OpenAPI"), make("dd", {}, make("a", { href: `${address}/openapi.json` }, `${address}/openapi.json`)));
}

function described(method, path, { summary, parameters, requestBody, responses }) {
  const line = make("summary", {}, make("span", { class: "method", "data-method": method }, method.toUpperCase()), make("code", {}, path), make("span", { class: "purpose" }, summary));
  const [[type, reply]] = Object.entries(responses["200"].content);
  const body = requestBody?.content["application/json"]?.schema;
  return make(
    "details",
    { class: "panel operation" },
    line,
    parameters.length ? [make("h3", {}, "Parameters"), make("dl", { class: "parameters" }, parameters.flatMap(parameter))] : null,
    body ? [make("h3", {}, "Body"), json(body)] : null,
    make("h3", {}, `Reply, ${type}`),
    json(reply.schema),
  );
}

const parameter = ({ name, in: place, required, description = "" }) => [
  make("dt", {}, make("code", {}, name)),
  make("dd", {}, `in the ${place}${required ? "" : ", optional"}. ${description}`),
];

const json = (schema) => make("pre", { tabindex: 0 }, JSON.stringify(schema, null, 2));
