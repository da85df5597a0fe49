"""MCP server: tools with which an AI assistant finds the cause of a failure, over standard input and output.

Tools call the operations of the command line, locally or over HTTP, with the permissions of the caller. Answers are
bounded in size. They never contain the values of arguments; text written by tasks is marked as data.

- `answers`: operations' results as bounded JSON
- `read_tools`: tools that change nothing
- `write_tools`: tools that change something, in two steps; only with --allow
- `server`: the server of the `mcp` SDK with these tools

Next: aaiclick.cli.mcp, which runs it.
"""
