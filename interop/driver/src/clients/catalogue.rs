//! The table of clients.

use crate::pin::{Pin, pin};
use crate::program::Program;

/// To add a client, add a row. The arguments may contain `$URL` (the endpoint), `$FETCHED` (the
/// folder with the fetched programs) and `$NODE` (a Node.js of version 22).
pub(super) const CLIENTS: &[Client] = &[
    Client::new("typescript", TYPESCRIPT, &["typescript_1", "legacy", "$URL"], TYPESCRIPT_PIN).in_ci(),
    Client::new("typescript-2", TYPESCRIPT_2, &["typescript_2", "modern", "$URL"], TYPESCRIPT_2_PIN).in_ci(),
    Client::new("typescript-2-legacy", TYPESCRIPT_2, &["typescript_2", "legacy", "$URL"], TYPESCRIPT_2_PIN),
    Client::new("python", PYTHON, &["python_1", "legacy", "$URL"], pin("python/requirements.txt", "mcp==")),
    Client::new("python-2", PYTHON_2, &["python_2", "modern", "$URL"], PYTHON_2_PIN).in_ci(),
    Client::new("python-2-legacy", PYTHON_2, &["python_2", "legacy", "$URL"], PYTHON_2_PIN),
    Client::new("fastmcp", FASTMCP, &["fastmcp", "modern", "$URL"], FASTMCP_PIN).in_ci(),
    Client::new("fastmcp-legacy", FASTMCP, &["fastmcp", "legacy", "$URL"], FASTMCP_PIN),
    Client::new("rmcp", RMCP, &["calls", "modern", "$URL"], RMCP_PIN),
    Client::new("rmcp-legacy", RMCP, &["calls", "legacy", "$URL"], RMCP_PIN),
    Client::new("go", GO, &["calls", "modern", "$URL"], GO_PIN),
    Client::new("go-legacy", GO, &["calls", "legacy", "$URL"], GO_PIN),
    Client { known: NEVER_RESUMES, ..Client::new("java", JAVA, &["legacy", "$URL"], JAVA_PIN) },
    Client::new(
        "langchain",
        Program::python("langchain", "calls.py"),
        &["langchain", "legacy", "$URL"],
        pin("langchain/requirements.txt", "langchain-mcp-adapters=="),
    ),
    Client::new(
        "openai-agents",
        Program::python("openai-agents", "calls.py"),
        &["openai_agents", "modern", "$URL"],
        pin("openai-agents/requirements.txt", "openai-agents=="),
    ),
    Client::new(
        "pydantic-ai",
        Program::python("pydantic-ai", "calls.py"),
        &["pydantic_ai", "modern", "$URL"],
        pin("pydantic-ai/requirements.txt", "pydantic-ai-slim=="),
    ),
    Client::new(
        "mcp-remote",
        TYPESCRIPT_2,
        &["typescript_2", "modern", "node", MCP_REMOTE, "$URL", "--allow-http", "--transport", "http-only"],
        MCP_REMOTE_PIN,
    )
    .through(Program::node("mcp-remote", "")),
    Client::new(
        "mcp-remote-legacy",
        TYPESCRIPT,
        &["typescript_1", "legacy", "node", MCP_REMOTE, "$URL", "--allow-http", "--transport", "http-only"],
        MCP_REMOTE_PIN,
    )
    .through(Program::node("mcp-remote", "")),
    Client::new(
        "supergateway",
        TYPESCRIPT_2,
        &["typescript_2", "modern", "node", SUPERGATEWAY, "--streamableHttp", "$URL", "--logLevel", "none"],
        SUPERGATEWAY_PIN,
    )
    .through(Program::node("supergateway", "")),
    Client::new(
        "supergateway-legacy",
        TYPESCRIPT,
        &["typescript_1", "legacy", "node", SUPERGATEWAY, "--streamableHttp", "$URL", "--logLevel", "none"],
        SUPERGATEWAY_PIN,
    )
    .through(Program::node("supergateway", "")),
    Client::new(
        "inspector",
        Program::node("inspector", "commands.mjs"),
        &["inspector", "$URL", "$NODE", INSPECTOR],
        pin("inspector/package.json", "@modelcontextprotocol/inspector\": \""),
    ),
    Client::new(
        "claude-code",
        Program::node("claude-code", "commands.mjs"),
        &["claude", "$URL", "node", CLAUDE_CODE],
        pin("claude-code/package.json", "@anthropic-ai/claude-code\": \""),
    )
    .health_check(),
    Client::new(
        "gemini-cli",
        Program::node("gemini-cli", "commands.mjs"),
        &["gemini", "$URL", "node", GEMINI_CLI],
        pin("gemini-cli/package.json", "@google/gemini-cli\": \""),
    )
    .health_check(),
];

const NEVER_RESUMES: &[Known] = &[
    never_resumes("cut"),
    never_resumes("cut twice"),
    never_resumes("gateway killed, write"),
    never_resumes("gateway killed, read"),
];

const fn never_resumes(column: &'static str) -> Known {
    let advice = "The SDK never resumes the stream of a call. The caller gets an error after \
        `requestTimeout` (here 60 seconds), and does not know whether the call was executed. Set a short \
        timeout, and repeat calls that may be repeated.";
    Known { column, cell: "hung", advice }
}

const TYPESCRIPT: Program = Program::node("typescript", "calls.mjs");
const TYPESCRIPT_2: Program = Program::node("typescript-2", "calls.mjs");
const PYTHON: Program = Program::python("python", "calls.py");
const PYTHON_2: Program = Program::python("python-2", "calls.py");
const FASTMCP: Program = Program::python("fastmcp", "calls.py");
const RMCP: Program = Program::rust("steadfast-interop-rmcp");
const GO: Program = Program::Go { folder: "go" };
const JAVA: Program = Program::Java { folder: "java", class: "Calls" };

const MCP_REMOTE: &str = "$FETCHED/mcp-remote/node_modules/mcp-remote/dist/proxy.js";
const SUPERGATEWAY: &str = "$FETCHED/supergateway/node_modules/supergateway/dist/index.js";
const INSPECTOR: &str =
    "$FETCHED/inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
const CLAUDE_CODE: &str = "$FETCHED/claude-code/node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs";
const GEMINI_CLI: &str = "$FETCHED/gemini-cli/node_modules/@google/gemini-cli/bundle/gemini.js";

const TYPESCRIPT_PIN: Pin = pin("typescript/package.json", "@modelcontextprotocol/sdk\": \"");
const TYPESCRIPT_2_PIN: Pin = pin("typescript-2/package.json", "@modelcontextprotocol/client\": \"");
const PYTHON_2_PIN: Pin = pin("python-2/requirements.txt", "mcp==");
const FASTMCP_PIN: Pin = pin("fastmcp/requirements.txt", "fastmcp==");
const RMCP_PIN: Pin = pin("../../Cargo.lock", "name = \"rmcp\"\nversion = \"");
const GO_PIN: Pin = pin("go/go.mod", "github.com/modelcontextprotocol/go-sdk ");
const JAVA_PIN: Pin = pin("java/pom.xml", "<artifactId>mcp</artifactId>\n      <version>");
const MCP_REMOTE_PIN: Pin = pin("mcp-remote/package.json", "\"mcp-remote\": \"");
const SUPERGATEWAY_PIN: Pin = pin("supergateway/package.json", "\"supergateway\": \"");

#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) arguments: &'static [&'static str],
    /// A second program that the first one starts.
    pub(super) adapter: Option<Program>,
    pub(super) version: Pin,
    pub(super) kind: Kind,
    /// CI runs only a few of the clients.
    pub(super) is_in_ci: bool,
    /// Faults of the client itself, which no server can mend.
    pub(super) known: &'static [Known],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Calls,
    /// Connects and lists tools, but calls none.
    HealthCheck,
}

/// A cell of the table that would fail the run, but is a fault of the client.
#[derive(Debug)]
pub(super) struct Known {
    /// The column and the text of the cell.
    pub(super) column: &'static str,
    pub(super) cell: &'static str,
    /// What the client does, and what its user can do about it.
    pub(super) advice: &'static str,
}

impl Client {
    const fn new(
        name: &'static str,
        program: Program,
        arguments: &'static [&'static str],
        version: Pin,
    ) -> Self {
        let (adapter, kind, is_in_ci, known) = (None, Kind::Calls, false, &[]);
        Self { name, program, arguments, adapter, version, kind, is_in_ci, known }
    }

    const fn in_ci(mut self) -> Self {
        self.is_in_ci = true;
        self
    }

    const fn health_check(mut self) -> Self {
        self.kind = Kind::HealthCheck;
        self
    }

    /// With an adapter between the client and the gateway.
    const fn through(mut self, adapter: Program) -> Self {
        self.adapter = Some(adapter);
        self
    }

    pub(super) fn known(&self, column: &str) -> Option<&Known> {
        self.known.iter().find(|known| known.column == column)
    }
}
