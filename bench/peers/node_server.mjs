// An MCP server on the SDK for Node, with its tools in it: `node_server.mjs TOOLS [http]`.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const text = (text) => ({ content: [{ type: "text", text }], isError: false });
const items = z.array(z.record(z.string(), z.any()));

function tools() {
  const server = new McpServer({ name: "bench", version: "0" });
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
  return server;
}

// A transport and a server for each session, as the SDK requires; one JSON message per answer.
const sessions = new Map();
async function answer(request, response) {
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: true,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await tools().connect(transport);
  }
  await transport.handleRequest(request, response);
}

if (process.argv[3] === "http") {
  // Connections are idle for longer than the default of five seconds.
  const http = createServer({ keepAliveTimeout: 600_000 }, answer);
  http.listen(0, "127.0.0.1", () => {
    console.log(JSON.stringify({ url: `http://127.0.0.1:${http.address().port}/mcp` }));
  });
  process.stdin.resume();
} else {
  await tools().connect(new StdioServerTransport());
}
// Neither transport exits when its client disconnects.
process.stdin.on("end", () => process.exit(0));
