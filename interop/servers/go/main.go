// A server on the Go SDK with the tools of interop/README.md. `server` listens on PORT, `server
// stdio` uses its standard input and output.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type (
	slowIn struct {
		Ms   int    `json:"ms"`
		Text string `json:"text"`
	}
	progressIn struct {
		Steps int `json:"steps"`
		Ms    int `json:"ms"`
	}
	elicitIn struct {
		Question string `json:"question"`
	}
	countIn struct {
		N int `json:"n"`
	}
	bigIn struct {
		Bytes int `json:"bytes"`
	}
	nothing struct{}
	result  = *mcp.CallToolResult
	call    = *mcp.CallToolRequest
)

// Each session has its own server, so this state belongs to one session.
func session() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1"}, nil)
	var counter atomic.Int64

	mcp.AddTool(server, &mcp.Tool{Name: "slow"}, slow)
	mcp.AddTool(server, &mcp.Tool{Name: "safe_slow", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, slow)
	mcp.AddTool(server, &mcp.Tool{Name: "progress"}, progress)
	mcp.AddTool(server, &mcp.Tool{Name: "elicit"}, elicit)
	mcp.AddTool(server, &mcp.Tool{Name: "samples"}, samples)
	mcp.AddTool(server, &mcp.Tool{Name: "counter"}, func(context.Context, call, nothing) (result, any, error) {
		return say(strconv.FormatInt(counter.Add(1), 10))
	})
	mcp.AddTool(server, &mcp.Tool{Name: "big"}, func(_ context.Context, _ call, in bigIn) (result, any, error) {
		return say(strings.Repeat("x", in.Bytes))
	})
	mcp.AddTool(server, &mcp.Tool{Name: "log"}, logLines)
	mcp.AddTool(server, &mcp.Tool{Name: "crash"}, func(context.Context, call, nothing) (result, any, error) {
		os.Exit(1)
		return nil, nil, nil
	})
	return server
}

func slow(ctx context.Context, _ call, in slowIn) (result, any, error) {
	if err := sleep(ctx, in.Ms); err != nil {
		return nil, nil, err
	}
	return say(in.Text)
}

func progress(ctx context.Context, call call, in progressIn) (result, any, error) {
	for step := 1; step <= in.Steps; step++ {
		if err := sleep(ctx, in.Ms); err != nil {
			return nil, nil, err
		}
		if token := call.Params.GetProgressToken(); token != nil {
			// A client that is not connected now may resume for the response.
			_ = call.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(step), Total: float64(in.Steps),
			})
		}
	}
	return say("done")
}

func elicit(ctx context.Context, call call, in elicitIn) (result, any, error) {
	reply, err := call.Session.Elicit(ctx, &mcp.ElicitParams{Message: in.Question, RequestedSchema: map[string]any{
		"type":       "object",
		"properties": map[string]any{"answer": map[string]any{"type": "string"}},
		"required":   []string{"answer"},
	}})
	if err != nil {
		return nil, nil, err
	}
	if answer, ok := reply.Content["answer"].(string); ok {
		return say(answer)
	}
	return say(reply.Action)
}

func samples(ctx context.Context, call call, in countIn) (result, any, error) {
	texts, errs := make([]string, in.N), make([]error, in.N)
	var all sync.WaitGroup
	for i := range in.N {
		all.Go(func() {
			reply, err := call.Session.CreateMessage(ctx, &mcp.CreateMessageParams{
				MaxTokens: 10,
				Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: strconv.Itoa(i + 1)}}},
			})
			if err != nil {
				errs[i] = err
			} else if text, ok := reply.Content.(*mcp.TextContent); ok {
				texts[i] = text.Text
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return say(strings.Join(texts, ","))
}

func logLines(ctx context.Context, call call, in countIn) (result, any, error) {
	for i := 1; i <= in.N; i++ {
		if err := call.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: fmt.Sprintf("line %d", i)}); err != nil {
			return nil, nil, err
		}
	}
	return say("logged")
}

func say(text string) (result, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

func sleep(ctx context.Context, ms int) error {
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "stdio" {
		log.Fatal(session().Run(context.Background(), &mcp.StdioTransport{}))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return session() }, nil))
	fmt.Println("ready")
	log.Fatal(http.Serve(listener, nil))
}
