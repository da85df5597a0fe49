"""Tools of the Model Context Protocol, with which an AI assistant finds the cause of a failure.

Tools call the operations of the caller with the caller's permissions. Answers are bounded in size. They never contain
the values of arguments; text written by tasks is marked as data.

- `tool_results`: operations' results as bounded JSON
- `confirmations`: signed tokens of plans
- `read_tools`: tools that change nothing
- `write_tools`: tools that change something, in two steps; only if they are allowed
- `server`: the server of the `mcp` SDK with these tools

Next: aaiclick.cli.mcp (standard input and output) and aaiclick.server.mcp (HTTP), which run it.
"""
