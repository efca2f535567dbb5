// An MCP server on the SDK for Node, with its tools in it: `node_server.mjs TOOLS`.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "bench", version: "0" });
const text = (text) => ({ content: [{ type: "text", text }], isError: false });
const items = z.array(z.record(z.string(), z.any()));

server.registerTool(
  "echo",
  { description: "Returns exactly the text", inputSchema: { text: z.string() } },
  async (args) => text(args.text),
);
server.registerTool(
  "take",
  { description: "Takes items, and returns the text", inputSchema: { items, text: z.string() } },
  async (args) => text(args.text),
);
server.registerTool(
  "both",
  { description: "Returns the items", inputSchema: { items, text: z.string() } },
  async (args) => ({ ...text("items"), structuredContent: args }),
);
for (let number = 0; number < Number(process.argv[2]) - 3; number++) {
  server.registerTool(
    `find_orders_${number}`,
    {
      description:
        "Finds the orders that fit all of what is given, the newest first. Leave out what does not matter.",
      inputSchema: {
        customer: z.string(),
        article: z.string().optional(),
        status: z.enum(["open", "paid", "sent", "returned"]).optional(),
        offset: z.number().int().min(0).optional(),
      },
    },
    async () => text(""),
  );
}

// The transport of the SDK does not end with its client.
process.stdin.on("end", () => process.exit(0));
await server.connect(new StdioServerTransport());
