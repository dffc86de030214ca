//! The servers, and the steps that are played with each. `interop/README.md` says what each step is about.

use std::fs;
use std::path::Path;

use super::super::program::Program;
use crate::failure::Failure;

/// As `interop/driver` plays them.
pub(super) const STEPS: &[&str] = &[
    "parallel",
    "duplicates",
    "cut",
    "asks",
    "progress_logs",
    "cancel",
    "gateway_killed",
    "server_killed",
    "crash",
    "big",
];

pub(super) const SERVERS: &[Server] = &[
    Server::http("typescript", TYPESCRIPT, TYPESCRIPT_PIN),
    Server::http(
        "typescript-2",
        TYPESCRIPT_2,
        pin("typescript-2/package.json", "@modelcontextprotocol/server\": \""),
    ),
    Server::http("python", PYTHON, PYTHON_PIN),
    Server::http("python-2", PYTHON_2, pin("python-2/requirements.txt", "mcp==")),
    Server::http("fastmcp", FASTMCP, pin("fastmcp/requirements.txt", "fastmcp==")),
    Server::http("go", GO, GO_PIN),
    Server::http("java", JAVA, pin("java/pom.xml", "<artifactId>mcp</artifactId>\n      <version>")),
    Server::http("rmcp", RMCP, RMCP_PIN),
    Server::stdio("typescript-stdio", TYPESCRIPT, TYPESCRIPT_PIN),
    Server::stdio("python-stdio", PYTHON, PYTHON_PIN),
    Server::stdio("go-stdio", GO, GO_PIN),
    Server::stdio("rmcp-stdio", RMCP, RMCP_PIN),
];

const TYPESCRIPT: Program = Program::node("typescript", "server.mjs");
const TYPESCRIPT_2: Program = Program::node("typescript-2", "server.mjs");
const PYTHON: Program = Program::python("python", "server.py");
const PYTHON_2: Program = Program::python("python-2", "server.py");
const FASTMCP: Program = Program::python("fastmcp", "server.py");
const GO: Program = Program::Go { folder: "go" };
const JAVA: Program = Program::Java { folder: "java", class: "Server" };
const RMCP: Program = Program::rust("steadfast-interop-server-rmcp");

const TYPESCRIPT_PIN: Pin = pin("typescript/package.json", "@modelcontextprotocol/sdk\": \"");
const PYTHON_PIN: Pin = pin("python/requirements.txt", "mcp==");
const GO_PIN: Pin = pin("go/go.mod", "github.com/modelcontextprotocol/go-sdk ");
const RMCP_PIN: Pin = pin("../../Cargo.lock", "name = \"rmcp\"\nversion = \"");

#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) way: Way,
    pin: Pin,
}

/// How the gateway reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Http,
    /// On its pipes; nobody else can.
    Stdio,
}

/// Where the version of an SDK is fixed: right behind this text of a file in `interop/servers`.
#[derive(Debug)]
struct Pin {
    file: &'static str,
    before: &'static str,
}

const fn pin(file: &'static str, before: &'static str) -> Pin {
    Pin { file, before }
}

impl Server {
    const fn http(name: &'static str, program: Program, pin: Pin) -> Self {
        Self { name, program, way: Way::Http, pin }
    }

    const fn stdio(name: &'static str, program: Program, pin: Pin) -> Self {
        Self { name, program, way: Way::Stdio, pin }
    }

    /// The version of its SDK.
    pub(super) fn sdk(&self, root: &Path) -> Result<String, Failure> {
        let path = root.join("interop/servers").join(self.pin.file);
        version_in(&fs::read_to_string(&path)?, self.pin.before)
            .ok_or_else(|| Failure::Broken(format!("{} names no version of its SDK", path.display())))
    }
}

fn version_in(text: &str, before: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    let version = rest.split(|c: char| c.is_whitespace() || c == '"' || c == '<').next()?;
    version.contains('.').then(|| version.trim_start_matches('v').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        let check = |text, before, expect: Option<&str>| {
            assert_eq!(version_in(text, before).as_deref(), expect, "{text}");
        };
        check("a==1\nmcp==1.30.0\nb==2\n", "mcp==", Some("1.30.0"));
        check("{\"sdk\": \"1.32.2\",\n", "sdk\": \"", Some("1.32.2"));
        check("require go-sdk v1.8.0\n", "go-sdk ", Some("1.8.0"));
        check("<v>2.1.0</v>", "<v>", Some("2.1.0"));
        check("mcp", "mcp==", None);
    }

    #[test]
    fn every_server_says_which_sdk_it_is_on() {
        for server in SERVERS {
            server.sdk(&crate::root()).unwrap();
        }
    }
}
