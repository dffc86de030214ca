import io.modelcontextprotocol.client.McpAsyncClient;
import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.json.McpJsonMapper;
import io.modelcontextprotocol.spec.McpError;
import io.modelcontextprotocol.spec.McpSchema.CallToolRequest;
import io.modelcontextprotocol.spec.McpSchema.CreateMessageRequest;
import io.modelcontextprotocol.spec.McpSchema.CreateMessageResult;
import io.modelcontextprotocol.spec.McpSchema.ElicitResult;
import io.modelcontextprotocol.spec.McpSchema.Implementation;
import io.modelcontextprotocol.spec.McpSchema.JSONRPCNotification;
import io.modelcontextprotocol.spec.McpSchema.JSONRPCRequest;
import io.modelcontextprotocol.spec.McpSchema.LoggingLevel;
import io.modelcontextprotocol.spec.McpSchema.ProgressNotification;
import io.modelcontextprotocol.spec.McpSchema.Role;
import io.modelcontextprotocol.spec.McpSchema.TextContent;
import io.modelcontextprotocol.spec.McpSchema.Tool;
import io.modelcontextprotocol.spec.McpTransportSessionNotFoundException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * Runs the script "demo" of interop/README.md with the Java SDK. Arguments: the URL of the
 * endpoint, the URL of the control endpoint.
 */
public final class Client {

    private static final Duration LIMIT = Duration.ofSeconds(20);
    private static final McpJsonMapper JSON = McpJsonDefaults.getMapper();

    private final URI url;
    private final String controlUrl;
    private final HttpClient control = HttpClient.newHttpClient();
    private final HttpClientStreamableHttpTransport transport;
    private final McpAsyncClient client;
    private final List<ProgressNotification> progress = new CopyOnWriteArrayList<>();
    private final List<Object> logs = new CopyOnWriteArrayList<>();

    private interface Step {
        String play() throws Exception;
    }

    /** Evidence of a step that the SDK cannot do. */
    private static final class Cannot extends Exception {
        Cannot(String detail) {
            super(detail);
        }
    }

    private Client(String url, String controlUrl) {
        this.url = URI.create(url);
        this.controlUrl = controlUrl;
        transport = transport(HttpRequest.newBuilder());
        client = McpClient.async(transport)
            .clientInfo(Implementation.builder("steadfast-interop", "1").build())
            .requestTimeout(LIMIT)
            .elicitation(form -> Mono.just(
                ElicitResult.builder(ElicitResult.Action.ACCEPT).content(Map.of("name", "Ada", "number", 7)).build()))
            .sampling(request -> Mono.just(
                CreateMessageResult.builder(Role.ASSISTANT, "I heard: " + prompt(request), "none").build()))
            .progressConsumer(done -> Mono.fromRunnable(() -> progress.add(done)))
            .loggingConsumer(log -> Mono.fromRunnable(() -> logs.add(log.data())))
            .build();
    }

    private HttpClientStreamableHttpTransport transport(HttpRequest.Builder request) {
        return HttpClientStreamableHttpTransport.builder(url.resolve("/").toString())
            .endpoint(url.getPath()).requestBuilder(request).build();
    }

    private String initialize() {
        var hello = client.initialize().block();
        var tools = client.listTools().block().tools().stream().map(Tool::name).toList();
        expect(tools, List.of("countdown", "chatter", "notebook", "fortune", "council"));
        return hello.serverInfo().name() + ", revision " + hello.protocolVersion();
    }

    private String progress() throws Exception {
        countdown(5, 20);
        return "5 in order";
    }

    private String logs() throws Exception {
        client.setLoggingLevel(LoggingLevel.INFO).block();
        expect(call("chatter", Map.of("lines", 4)).block(), "Said 4 things.");
        until("the last message", () -> logs.size() >= 4);
        expect(List.copyOf(logs), numbers(4).map(line -> "message " + (line + 1) + " of 4").toList());
        return "4 in order";
    }

    private String notebook() {
        expect(call("notebook", Map.of("action", "add", "text", "first")).block(), "Noted. You have 1 note(s).");
        expect(notes(), List.of("first"));
        return "added and listed";
    }

    private String parallel() {
        Flux.range(0, 20).flatMap(number -> number % 2 == 0
            ? call("notebook", Map.of("action", "add", "text", "note " + number))
            : call("countdown", Map.of("from", number, "step_ms", 5)).doOnNext(text -> expect(text, liftOff(number))), 20).blockLast();
        var expected = Stream.concat(Stream.of("first"), numbers(10).map(half -> "note " + half * 2)).sorted().toList();
        expect(notes().stream().sorted().toList(), expected);
        return "20 calls, each with its own answer";
    }

    private String fortune() {
        expect(call("fortune", Map.of()).block(), "Ada, a person with your very id will come, and be turned away.");
        return "a form was filled in";
    }

    private String council() {
        var expected = Stream.of("an optimist", "a pessimist", "a pirate")
            .map(adviser -> adviser + ": I heard: You are " + adviser + ". Answer in one sentence: Why?").toList();
        expect(call("council", Map.of("question", "Why?", "advisers", 3)).block().lines().toList(), expected);
        return "3 samples, each for its own prompt";
    }

    private String refused() {
        try {
            call("nonesuch", Map.of()).block();
        } catch (McpError error) {
            expect(error.getJsonRpcError().code(), -32602);
            return "an unknown tool is -32602";
        }
        throw new AssertionError("an unknown tool was called");
    }

    /**
     * Calls the countdown while the proxy cuts its connection after these numbers of events. This
     * SDK does not resume, and its caller gets no response. The step shows that the session still
     * works.
     */
    private String dropped(String cuts, int from) throws Exception {
        control("POST", "/cut?after=" + cuts);
        var limit = Duration.ofMillis(from * 100 + 1500);
        var call = call("countdown", Map.of("from", from, "step_ms", 100)).timeout(limit);
        var answer = call.onErrorResume(TimeoutException.class, late -> Mono.just("")).block();
        var verdict = (String) control("GET", "/cut").get("detail");
        if (!answer.isEmpty()) {
            return "answered: " + verdict;
        }
        expect(verdict.startsWith("the client did not resume") || verdict.equals("1 cut(s) were not reached"), true);
        countdown(1, 1);
        throw new Cannot("the client did not resume, and the call hangs; the next call succeeds");
    }

    private String cancelled() throws Exception {
        progress.clear();
        var call = call("countdown", Map.of("from", 100, "step_ms", 100)).subscribe();
        until("the progress", () -> progress.size() > 2);
        // This SDK does not cancel a request, and does not expose its id.
        call.dispose();
        var params = Map.of("requestId", control("GET", "/call").get("id"), "reason", "enough");
        transport.sendMessage(new JSONRPCNotification("notifications/cancelled", params)).block();
        expect(control("GET", "/call").get("cancelled"), true);
        countdown(1, 1);
        return "by disposal and a notification; the next call is served";
    }

    private String restarted() throws Exception {
        var before = notes();
        var session = control("GET", "/call").get("session");
        expect(control("POST", "/restart").get("ok"), true);
        expect(notes(), before);
        expect(control("GET", "/call").get("session"), session);
        countdown(2, 10);
        return "the session and its " + before.size() + " notes are still there";
    }

    private String terminated() throws Exception {
        var session = (String) control("GET", "/call").get("session");
        client.closeGracefully().block();
        expect(control("GET", "/call").get("deleted"), 204);
        var late = transport(HttpRequest.newBuilder().header("Mcp-Session-Id", session));
        var faults = new CopyOnWriteArrayList<Throwable>();
        late.setExceptionHandler(faults::add);
        late.connect(message -> message).block();
        // This may fail or not, depending on timing.
        late.sendMessage(new JSONRPCRequest("tools/list", "late", Map.of())).onErrorComplete().block();
        until("the refusal", () -> !faults.isEmpty());
        expect(faults.get(0).getClass(), McpTransportSessionNotFoundException.class);
        return "DELETE is 204 when the client closes; then 404";
    }

    /** Calls the countdown and expects all progress notifications in order. */
    private void countdown(int from, int ms) throws Exception {
        progress.clear();
        expect(call("countdown", Map.of("from", from, "step_ms", ms)).block(), liftOff(from));
        var expected = numbers(from).map(done -> List.of((double) done, (double) from, "" + (from - done))).toList();
        expect(progress.stream().map(step -> List.of(step.progress(), step.total(), step.message())).toList(), expected);
    }

    private Mono<String> call(String tool, Map<String, Object> arguments) {
        var request = CallToolRequest.builder().name(tool).arguments(arguments).progressToken(tool).build();
        return client.callTool(request).map(result -> ((TextContent) result.content().get(0)).text());
    }

    private List<String> notes() {
        return call("notebook", Map.of("action", "list")).block().lines().toList();
    }

    @SuppressWarnings("unchecked")
    private Map<String, Object> control(String verb, String path) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(controlUrl + path)).method(verb, HttpRequest.BodyPublishers.noBody());
        return JSON.readValue(control.send(request.build(), BodyHandlers.ofString()).body(), Map.class);
    }

    private static String prompt(CreateMessageRequest request) {
        return ((TextContent) request.messages().get(0).content()).text();
    }

    private static String liftOff(int from) {
        return "Counted down from " + from + ": lift-off!";
    }

    private static Stream<Integer> numbers(int count) {
        return IntStream.range(0, count).boxed();
    }

    private static void expect(Object got, Object wanted) {
        if (!got.equals(wanted)) {
            throw new AssertionError("got " + got + ", wanted " + wanted);
        }
    }

    private static void until(String what, BooleanSupplier condition) throws InterruptedException {
        for (var tries = 0; !condition.getAsBoolean(); tries++) {
            if (tries == 100) {
                throw new AssertionError(what + " did not happen");
            }
            Thread.sleep(50);
        }
    }

    public static void main(String[] args) throws Exception {
        var script = new Client(args[0], args[1]);
        var steps = new LinkedHashMap<String, Step>();
        steps.put("initialize", script::initialize);
        steps.put("progress", script::progress);
        steps.put("logs", script::logs);
        steps.put("notebook", script::notebook);
        steps.put("parallel", script::parallel);
        steps.put("fortune", script::fortune);
        steps.put("council", script::council);
        steps.put("refused", script::refused);
        steps.put("dropped-early", () -> script.dropped("1", 4));
        steps.put("dropped-midway", () -> script.dropped("3", 15));
        steps.put("dropped-twice", () -> script.dropped("3,2", 30));
        steps.put("cancelled", script::cancelled);
        steps.put("restarted", script::restarted);
        steps.put("terminated", script::terminated);
        var failed = false;
        for (var step : steps.entrySet()) {
            var line = new LinkedHashMap<String, Object>(Map.of("step", step.getKey()));
            try {
                line.put("detail", step.getValue().play());
                line.put("ok", true);
            } catch (Cannot cannot) {
                line.put("detail", cannot.getMessage());
                line.put("cannot", true);
            } catch (Exception | AssertionError error) {
                line.put("detail", error.toString());
                line.put("ok", false);
                failed = true;
            }
            System.out.println(JSON.writeValueAsString(line));
        }
        System.exit(failed ? 1 : 0);
    }
}
