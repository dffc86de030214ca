//! The table of servers and the SDK version of each.

use std::path::Path;

use crate::pin::{Pin, pin};
use crate::program::Program;
use steadfast_test_setup::Failure;

/// To add a server, add a row.
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
    pub(super) transport: Transport,
    pin: Pin,
}

/// How a server receives requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    /// On its standard input, as a child process of the gateway. Only the gateway can reach it.
    Stdio,
}

impl Server {
    const fn http(name: &'static str, program: Program, pin: Pin) -> Self {
        Self { name, program, transport: Transport::Http, pin }
    }

    const fn stdio(name: &'static str, program: Program, pin: Pin) -> Self {
        Self { name, program, transport: Transport::Stdio, pin }
    }

    /// Returns the version of the server's SDK.
    pub(super) fn sdk(&self, root: &Path) -> Result<String, Failure> {
        self.pin.version(&root.join("interop/servers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_version_of_every_server_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        for server in SERVERS {
            server.sdk(root).unwrap();
        }
    }
}
