package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Makes the calls that the driver asks for. interop/README.md describes the lines.
func calls(era, url string) {
	client := mcp.NewClient(&mcp.Implementation{Name: "steadfast-interop", Version: "1"}, nil)
	options := &mcp.ClientSessionOptions{}
	if era == "legacy" {
		options.ProtocolVersion = "2025-11-25"
	}
	session, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: url}, options)
	check(err)
	var out sync.Mutex
	say := func(line object) {
		text, err := json.Marshal(line)
		check(err)
		out.Lock()
		defer out.Unlock()
		fmt.Println(string(text))
	}
	say(object{"ready": true})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var request struct{ Key, Tool string }
		check(json.Unmarshal(lines.Bytes(), &request))
		go func() {
			arguments := object{"key": request.Key}
			result, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: request.Tool, Arguments: arguments})
			switch {
			case err != nil:
				say(object{"key": request.Key, "error": err.Error()})
			case result.IsError:
				say(object{"key": request.Key, "error": result.Content[0].(*mcp.TextContent).Text})
			default:
				say(object{"key": request.Key, "text": result.Content[0].(*mcp.TextContent).Text})
			}
		}()
	}
}
