import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.server.McpAsyncServerExchange;
import io.modelcontextprotocol.server.McpServer;
import io.modelcontextprotocol.server.transport.HttpServletStreamableServerTransportProvider;
import io.modelcontextprotocol.server.transport.StdioServerTransportProvider;
import io.modelcontextprotocol.spec.McpSchema.CallToolRequest;
import io.modelcontextprotocol.spec.McpSchema.CallToolResult;
import io.modelcontextprotocol.spec.McpSchema.CreateMessageRequest;
import io.modelcontextprotocol.spec.McpSchema.ElicitFormRequest;
import io.modelcontextprotocol.spec.McpSchema.LoggingLevel;
import io.modelcontextprotocol.spec.McpSchema.LoggingMessageNotification;
import io.modelcontextprotocol.spec.McpSchema.ProgressNotification;
import io.modelcontextprotocol.spec.McpSchema.Role;
import io.modelcontextprotocol.spec.McpSchema.SamplingMessage;
import io.modelcontextprotocol.spec.McpSchema.ServerCapabilities;
import io.modelcontextprotocol.spec.McpSchema.TextContent;
import io.modelcontextprotocol.spec.McpSchema.Tool;
import io.modelcontextprotocol.spec.McpSchema.ToolAnnotations;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.catalina.startup.Tomcat;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * A server on the Java SDK with the tools of interop/README.md. {@code Server} listens on PORT,
 * {@code Server stdio} uses its standard input and output.
 */
public final class Server {

    private static final Map<String, Integer> COUNTERS = new ConcurrentHashMap<>();

    private interface Handler {
        Mono<String> handle(McpAsyncServerExchange exchange, CallToolRequest call);
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("stdio")) {
            build(McpServer.async(new StdioServerTransportProvider(McpJsonDefaults.getMapper())));
            new CountDownLatch(1).await();
        }
        var transport = HttpServletStreamableServerTransportProvider.builder().mcpEndpoint("/mcp").build();
        build(McpServer.async(transport));
        var tomcat = new Tomcat();
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir"));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        tomcat.getConnector().setPort(Integer.parseInt(System.getenv("PORT")));
        var context = tomcat.addContext("", null);
        Tomcat.addServlet(context, "mcp", transport).setAsyncSupported(true);
        context.addServletMappingDecoded("/mcp", "mcp");
        tomcat.start();
        System.out.println("ready");
        tomcat.getServer().await();
    }

    private static void build(McpServer.AsyncSpecification<?> server) {
        server.serverInfo("java", "1").capabilities(ServerCapabilities.builder().tools(true).logging().build());
        tool(server, "slow", Map.of("ms", "integer", "text", "string"), false, Server::slow);
        tool(server, "safe_slow", Map.of("ms", "integer", "text", "string"), true, Server::slow);
        tool(server, "progress", Map.of("steps", "integer", "ms", "integer"), false, Server::progress);
        tool(server, "elicit", Map.of("question", "string"), false, Server::elicit);
        tool(server, "samples", Map.of("n", "integer"), false, Server::samples);
        tool(server, "counter", Map.of(), false,
            (exchange, call) -> Mono.just("" + COUNTERS.merge("" + exchange.sessionId(), 1, Integer::sum)));
        tool(server, "big", Map.of("bytes", "integer"), false, (exchange, call) -> Mono.just("x".repeat(number(call, "bytes"))));
        tool(server, "log", Map.of("n", "integer"), false, Server::log);
        tool(server, "crash", Map.of(), false, (exchange, call) -> {
            Runtime.getRuntime().halt(1);
            return Mono.empty();
        });
        server.build();
    }

    private static void tool(
        McpServer.AsyncSpecification<?> server, String name, Map<String, String> input, boolean readOnly, Handler handler) {
        var properties = new LinkedHashMap<String, Object>();
        input.forEach((key, type) -> properties.put(key, Map.of("type", type)));
        var schema = Map.<String, Object>of("type", "object", "properties", properties, "required", List.copyOf(input.keySet()));
        var tool = Tool.builder(name, schema);
        if (readOnly) {
            tool.annotations(ToolAnnotations.builder().readOnlyHint(true).build());
        }
        server.toolCall(tool.build(), (exchange, call) ->
            handler.handle(exchange, call).map(text -> CallToolResult.builder().addTextContent(text).build()));
    }

    private static Mono<String> slow(McpAsyncServerExchange exchange, CallToolRequest call) {
        return Mono.delay(Duration.ofMillis(number(call, "ms"))).thenReturn((String) call.arguments().get("text"));
    }

    private static Mono<String> progress(McpAsyncServerExchange exchange, CallToolRequest call) {
        var token = call.progressToken();
        var steps = number(call, "steps");
        return Flux.range(1, steps)
            .concatMap(step -> Mono.delay(Duration.ofMillis(number(call, "ms"))).then(token == null ? Mono.empty()
                : exchange.progressNotification(ProgressNotification.builder(token, step).total((double) steps).build())))
            .then(Mono.just("done"));
    }

    private static Mono<String> elicit(McpAsyncServerExchange exchange, CallToolRequest call) {
        var form = Map.<String, Object>of(
            "type", "object", "properties", Map.of("answer", Map.of("type", "string")), "required", List.of("answer"));
        return exchange.createElicitation(ElicitFormRequest.builder((String) call.arguments().get("question"), form).build())
            .map(reply -> reply.content() == null ? reply.action().toString().toLowerCase() : (String) reply.content().get("answer"));
    }

    private static Mono<String> samples(McpAsyncServerExchange exchange, CallToolRequest call) {
        return Flux.range(1, number(call, "n"))
            .flatMapSequential(i -> exchange.createMessage(CreateMessageRequest.builder(
                List.of(SamplingMessage.builder(Role.USER, TextContent.builder("" + i).build()).build()), 10).build()))
            .map(reply -> ((TextContent) reply.content()).text())
            .collectList()
            .map(texts -> String.join(",", texts));
    }

    private static Mono<String> log(McpAsyncServerExchange exchange, CallToolRequest call) {
        return Flux.range(1, number(call, "n"))
            .concatMap(i -> exchange.loggingNotification(
                LoggingMessageNotification.builder(LoggingLevel.INFO, "line " + i).build()))
            .then(Mono.just("logged"));
    }

    private static int number(CallToolRequest call, String name) {
        return ((Number) call.arguments().get(name)).intValue();
    }
}
