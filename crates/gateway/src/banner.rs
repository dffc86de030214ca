//! What a person sees when the server is up.

use std::io::{self, Write as _};

use steadfast::StoreUrl;

pub(crate) fn print(url: &str, store: &StoreUrl) {
    // A closed stdout is no reason not to serve.
    let _ = write!(
        io::stdout().lock(),
        r#"steadfast demo server
  URL    {url}
  store  {store}

Try it:
  curl -si {url} -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -d '{initialize}'

Point a client at it:
  Claude Code   claude mcp add --transport http steadfast-demo {url}
  VS Code       {{"servers": {{"steadfast-demo": {{"type": "http", "url": "{url}"}}}}}}   (.vscode/mcp.json)
  Cursor        {{"mcpServers": {{"steadfast-demo": {{"url": "{url}"}}}}}}   (.cursor/mcp.json)

Tools: countdown, chatter, notebook, fortune, council. Cut the connection in the middle of a countdown: nothing is lost.
Ctrl-C stops it in good order; once more, at once.
"#,
        initialize = INITIALIZE,
    );
    let _ = io::stdout().flush();
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
