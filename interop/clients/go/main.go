// Runs the script "demo" of interop/README.md with the Go SDK. Arguments: the URL of the endpoint,
// the URL of the control endpoint.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	callLimit = 20 * time.Second
	liftOff   = "Counted down from %d: lift-off!"
)

type (
	object = map[string]any
	// A response of the control endpoint.
	said struct {
		Ok, Cancelled   bool
		Detail, Session string
		Deleted         int
	}
	// A progress notification.
	tick struct {
		Done, Total float64
		Message     string
	}
)

// The client under test and the notifications that it has received.
type script struct {
	url, controlURL string
	session         *mcp.ClientSession
	mu              sync.Mutex
	ticks           map[string][]tick
	logs            []any
}

func (s *script) initialize() string {
	client := mcp.NewClient(&mcp.Implementation{Name: "steadfast-interop", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: object{"name": "Ada", "number": 7}}, nil
		},
		CreateMessageHandler: func(_ context.Context, request *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			text := "I heard: " + request.Params.Messages[0].Content.(*mcp.TextContent).Text
			return &mcp.CreateMessageResult{Role: "assistant", Model: "none", Content: &mcp.TextContent{Text: text}}, nil
		},
		LoggingMessageHandler: func(_ context.Context, log *mcp.LoggingMessageRequest) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.logs = append(s.logs, log.Params.Data)
		},
		ProgressNotificationHandler: func(_ context.Context, progress *mcp.ProgressNotificationClientRequest) {
			s.mu.Lock()
			defer s.mu.Unlock()
			token := fmt.Sprint(progress.Params.ProgressToken)
			p := progress.Params
			s.ticks[token] = append(s.ticks[token], tick{p.Progress, p.Total, p.Message})
		},
	})
	// Without this setting the SDK uses no session.
	options := &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}
	session, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: s.url}, options)
	check(err)
	s.session = session
	list, err := session.ListTools(context.Background(), nil)
	check(err)
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	expect(names, []string{"countdown", "chatter", "notebook", "fortune", "council"})
	hello := session.InitializeResult()
	return fmt.Sprintf("%s, revision %s", hello.ServerInfo.Name, hello.ProtocolVersion)
}

func (s *script) progress() string {
	s.countdown("progress", 5, 20)
	return "5 in order"
}

func (s *script) listenToLogs() string {
	check(s.session.SetLoggingLevel(context.Background(), &mcp.SetLoggingLevelParams{Level: "info"}))
	expect(s.text("chatter", object{"lines": 4}), "Said 4 things.")
	heard := func() (logs []any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.logs)
	}
	until("the last message", func() bool { return len(heard()) >= 4 })
	expect(heard(), []any{"message 1 of 4", "message 2 of 4", "message 3 of 4", "message 4 of 4"})
	return "4 in order"
}

func (s *script) notebook() string {
	expect(s.text("notebook", object{"action": "add", "text": "first"}), "Noted. You have 1 note(s).")
	expect(s.notes(), "first")
	return "added and listed"
}

func (s *script) parallel() string {
	expected := []string{"first"}
	failures := make([]error, 20)
	var all sync.WaitGroup
	for number := range 20 {
		name, arguments := "countdown", object{"from": number, "step_ms": 5}
		if number%2 == 0 {
			note := fmt.Sprintf("note %d", number)
			name, arguments = "notebook", object{"action": "add", "text": note}
			expected = append(expected, note)
		}
		all.Go(func() {
			text, err := s.call(context.Background(), name, arguments, "")
			if wanted := fmt.Sprintf(liftOff, number); err == nil && name == "countdown" && text != wanted {
				err = fmt.Errorf("got %q, wanted %q", text, wanted)
			}
			failures[number] = err
		})
	}
	all.Wait()
	check(errors.Join(failures...))
	notes := strings.Split(s.notes(), "\n")
	slices.Sort(notes)
	slices.Sort(expected)
	expect(notes, expected)
	return "20 calls, each with its own answer"
}

func (s *script) fortune() string {
	expect(s.text("fortune", object{}), "Ada, a person with your very id will come, and be turned away.")
	return "a form was filled in"
}

func (s *script) council() string {
	var expected []string
	for _, adviser := range []string{"an optimist", "a pessimist", "a pirate"} {
		expected = append(expected, fmt.Sprintf("%[1]s: I heard: You are %[1]s. Answer in one sentence: Why?", adviser))
	}
	expect(strings.Split(s.text("council", object{"question": "Why?", "advisers": 3}), "\n"), expected)
	return "3 samples, each for its own prompt"
}

func (s *script) refused() string {
	_, err := s.call(context.Background(), "nonesuch", object{}, "")
	var refusal *jsonrpc.Error
	if !errors.As(err, &refusal) {
		panic(fmt.Errorf("not refused: %v", err))
	}
	expect(refusal.Code, int64(-32602))
	return "an unknown tool is -32602"
}

// Calls the countdown while the proxy cuts its connection after these numbers of events.
func (s *script) dropped(cuts string, from int) string {
	s.control("POST", "/cut?after="+cuts)
	s.countdown("dropped "+cuts, from, 100)
	verdict := s.control("GET", "/cut")
	if !verdict.Ok {
		panic(errors.New(verdict.Detail))
	}
	return verdict.Detail
}

func (s *script) cancelled() string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		for range 100 {
			if len(s.heard("cancelled")) > 2 {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	_, err := s.call(ctx, "countdown", object{"from": 100, "step_ms": 100}, "cancelled")
	if !errors.Is(err, context.Canceled) {
		panic(fmt.Errorf("the call went on: %v", err))
	}
	until("the cancellation", func() bool { return s.control("GET", "/call").Cancelled })
	expect(s.text("countdown", object{"from": 1, "step_ms": 1}), fmt.Sprintf(liftOff, 1))
	return "by the context of the call; the next call is served"
}

func (s *script) restarted() string {
	before, session := s.notes(), s.session.ID()
	expect(s.control("POST", "/restart").Ok, true)
	expect(s.notes(), before)
	expect(s.session.ID(), session)
	expect(s.control("GET", "/call").Session, session)
	s.countdown("restarted", 2, 10)
	return fmt.Sprintf("the session and its %d notes are still there", len(strings.Split(before, "\n")))
}

func (s *script) terminated() string {
	session := s.session.ID()
	check(s.session.Close())
	expect(s.control("GET", "/call").Deleted, 204)
	if _, err := s.session.ListTools(context.Background(), nil); !errors.Is(err, mcp.ErrConnectionClosed) {
		panic(fmt.Errorf("a closed client was served: %v", err))
	}
	late := &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: in(session)}}
	connection, err := late.Connect(context.Background())
	check(err)
	id, err := jsonrpc.MakeID("late")
	check(err)
	err = connection.Write(context.Background(), &jsonrpc.Request{ID: id, Method: "tools/list"})
	if err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusNotFound)) {
		panic(fmt.Errorf("not a 404: %v", err))
	}
	return "DELETE is 204 when the client closes; then 404"
}

// Adds a session id to every request of an HTTP client.
type in string

func (session in) RoundTrip(request *http.Request) (*http.Response, error) {
	request.Header.Set("Mcp-Session-Id", string(session))
	return http.DefaultTransport.RoundTrip(request)
}

// Calls the countdown and expects all progress notifications in order.
func (s *script) countdown(token string, from, ms int) {
	text, err := s.call(context.Background(), "countdown", object{"from": from, "step_ms": ms}, token)
	check(err)
	expect(text, fmt.Sprintf(liftOff, from))
	// This SDK handles responses and notifications in separate queues.
	until("the last progress", func() bool { return len(s.heard(token)) >= from })
	var expected []tick
	for done := range from {
		expected = append(expected, tick{float64(done), float64(from), fmt.Sprint(from - done)})
	}
	expect(s.heard(token), expected)
}

func (s *script) heard(token string) []tick {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ticks[token])
}

func (s *script) notes() string {
	return s.text("notebook", object{"action": "list"})
}

func (s *script) text(name string, arguments object) string {
	text, err := s.call(context.Background(), name, arguments, "")
	check(err)
	return text
}

func (s *script) call(ctx context.Context, name string, arguments object, token string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	params := &mcp.CallToolParams{Name: name, Arguments: arguments}
	if token != "" {
		params.Meta = mcp.Meta{"progressToken": token}
	}
	result, err := s.session.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

func (s *script) control(verb, path string) (answer said) {
	request, err := http.NewRequest(verb, s.controlURL+path, nil)
	check(err)
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	check(json.NewDecoder(response.Body).Decode(&answer))
	return answer
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect[T any](got, wanted T) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Errorf("got %#v, wanted %#v", got, wanted))
	}
}

func until(what string, condition func() bool) {
	for range 100 {
		if condition() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	panic(fmt.Errorf("%s did not happen", what))
}

func main() {
	if os.Args[1] == "calls" {
		calls(os.Args[2], os.Args[3])
		return
	}
	s := &script{url: os.Args[1], controlURL: os.Args[2], ticks: map[string][]tick{}}
	failed := false
	for _, step := range []struct {
		name string
		play func() string
	}{
		{"initialize", s.initialize},
		{"progress", s.progress},
		{"logs", s.listenToLogs},
		{"notebook", s.notebook},
		{"parallel", s.parallel},
		{"fortune", s.fortune},
		{"council", s.council},
		{"refused", s.refused},
		{"dropped-early", func() string { return s.dropped("1", 4) }},
		{"dropped-midway", func() string { return s.dropped("3", 15) }},
		{"dropped-twice", func() string { return s.dropped("3,2", 30) }},
		{"cancelled", s.cancelled},
		{"restarted", s.restarted},
		{"terminated", s.terminated},
	} {
		detail, ok := outcome(step.play)
		line, err := json.Marshal(object{"step": step.name, "ok": ok, "detail": detail})
		check(err)
		fmt.Println(string(line))
		failed = failed || !ok
	}
	if failed {
		os.Exit(1)
	}
}

// Evidence of a step, or why it failed.
func outcome(play func() string) (detail string, ok bool) {
	defer func() {
		if failure := recover(); failure != nil {
			detail, ok = fmt.Sprint(failure), false
		}
	}()
	return play(), true
}
