// How to connect to an environment from a program: one snippet for each kind of client.

import { make, notify, root } from "./dom.js";

/** The snippets by client; `locked` if the server needs a token, which the snippets then read from TROPISM_TOKEN. */
function snippets(name, locked) {
  const server = location.origin + root;
  const url = `${server}/envs/${encodeURIComponent(name)}`;
  const python = locked ? `Client("${url}", token=os.environ["TROPISM_TOKEN"])` : `Client("${url}")`;
  const header = locked ? ` -H "Authorization: Bearer $TROPISM_TOKEN"` : "";
  const official = locked ? `, headers={"Authorization": f"Bearer {os.environ['TROPISM_TOKEN']}"}` : "";
  const mcp = { url: `${server}/mcp`, ...(locked ? { headers: { Authorization: "Bearer ${TROPISM_TOKEN}" } } : {}) };
  return {
    Python: `${locked ? "import os\n\n" : ""}from tropism.client import Client\n\nwith ${python} as client:\n    result = client.reset(seed=0)\n    print(result.text)`,
    curl: `curl -sc jar -b jar${header} -X POST ${url}/reset -d '{"seed": 0}'\ncurl -s -b jar${header} ${url}/schema`,
    OpenEnv: `${locked ? "import os\n\n" : ""}from openenv.core.generic_client import GenericEnvClient\n\nwith GenericEnvClient(base_url="${url}"${official}).sync() as client:\n    print(client.reset(seed=0).observation)`,
    MCP: JSON.stringify({ mcpServers: { tropism: mcp } }, null, 2),
  };
}

/** A panel with one tab for each client. */
export function connect(name, locked = false) {
  const parts = Object.entries(snippets(name, locked));
  const code = make("pre", { tabindex: 0, id: "snippet", role: "tabpanel" });
  const tabs = parts.map(([client, text]) => make("button", { type: "button", role: "tab", class: "quiet", "aria-controls": "snippet", onclick: () => choose(client, text) }, client));
  const copy = make("button", { type: "button", class: "quiet", onclick: () => copied(code.textContent) }, "Copy");
  const choose = (client, text) => {
    tabs.forEach((tab) => tab.setAttribute("aria-selected", String(tab.textContent === client)));
    code.textContent = text;
    code.setAttribute("aria-label", client);
  };
  choose(...parts[0]);
  return make("section", { class: "panel connect" }, make("h2", {}, "Connect"), make("div", { class: "row", role: "tablist", "aria-label": "Client" }, tabs), code, make("div", { class: "row end" }, copy));
}

/** Only pages served over HTTPS or from this machine may use the clipboard. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied");
  } catch {
    notify("The browser does not allow copying here; select the text instead");
  }
}
