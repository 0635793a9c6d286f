"""A scripted agent corrects a package of three files over MCP: it reads the files, edits them and submits."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tropism import TropismError, make

TASK = Path(__file__).parent / "tasks" / "invoice"
EDIT = """
from pathlib import Path
path = Path("invoice") / {name!r}
path.write_text(path.read_text().replace({old!r}, {new!r}))
"""
EDITS = (
    ("items.py", "return unit_price", "return unit_price * quantity"),
    ("tax.py", "return amount * RATE", "return round(amount * RATE, 2)"),
)
LOOK = "from pathlib import Path\nfor path in sorted(Path('invoice').iterdir()): print(path, path.read_text())"


async def solve(agent: ClientSession) -> float:
    """Returns the reward of the submission."""

    async def call(tool: str, **arguments: Any) -> Any:
        result: Any = await agent.call_tool(tool, arguments)
        return json.loads(result.content[0].text)

    session = (await call("open_session", environment="Coding-v0"))["session_id"]
    begin = await call("begin_episode", session_id=session, seed=0)
    print(begin["metadata"]["prompt"])
    files = await call("take_action", session_id=session, action={"code": LOOK})
    print(files["observation"]["stdout"])
    for name, old, new in EDITS:
        await call("take_action", session_id=session, action={"code": EDIT.format(name=name, old=old, new=new)})
    end = await call("take_action", session_id=session, action={"code": "", "submit": True})
    return end["reward"]


async def main() -> None:
    try:
        make("Coding-v0", tier="A")
    except TropismError as error:
        print(f"needs a sandbox with files: {error}")
        return
    arguments = ["-m", "tropism", "mcp", "Coding-v0", "--arg", f"tasks={TASK}", "--arg", "tier=A"]
    server = StdioServerParameters(command=sys.executable, args=arguments)
    async with stdio_client(server) as streams, ClientSession(*streams[:2]) as agent:
        await agent.initialize()
        reward = await solve(agent)
        assert reward == 1.0
        print(f"reward {reward}")


if __name__ == "__main__":
    asyncio.run(main())
