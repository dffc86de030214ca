import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.json.McpJsonMapper;
import io.modelcontextprotocol.spec.McpSchema.CallToolRequest;
import io.modelcontextprotocol.spec.McpSchema.Implementation;
import io.modelcontextprotocol.spec.McpSchema.TextContent;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.URI;
import java.time.Duration;
import java.util.Map;

/**
 * Makes the calls that the driver asks for, with the Java SDK. Arguments: "legacy", the URL of the
 * endpoint. interop/README.md describes the lines that this program reads and writes.
 */
public final class Calls {

    private static final McpJsonMapper JSON = McpJsonDefaults.getMapper();

    private Calls() {
    }

    public static void main(String[] arguments) throws IOException {
        var url = URI.create(arguments[1]);
        var transport = HttpClientStreamableHttpTransport.builder(url.resolve("/").toString())
            .endpoint(url.getPath()).build();
        var client = McpClient.async(transport)
            .clientInfo(Implementation.builder("steadfast-interop", "1").build())
            .requestTimeout(Duration.ofSeconds(60)).build();
        client.initialize().block();
        say(Map.of("ready", true));
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            var request = JSON.readValue(line, Map.class);
            var key = request.get("key");
            var call = CallToolRequest.builder((String) request.get("tool")).arguments(Map.of("key", key)).build();
            client.callTool(call).subscribe(result -> {
                var text = ((TextContent) result.content().get(0)).text();
                say(Map.of("key", key, Boolean.TRUE.equals(result.isError()) ? "error" : "text", text));
            }, error -> say(Map.of("key", key, "error", error.toString())));
        }
        System.exit(0);
    }

    private static synchronized void say(Map<String, Object> line) {
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
