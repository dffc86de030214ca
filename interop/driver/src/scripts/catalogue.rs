//! The table of clients.

use super::definitions::{DEMO, DEMO_ERAS, ERAS, SERVER_REQUESTS, Script};
use crate::program::Program;

/// To add a client, add a row.
pub(super) const CLIENTS: &[Client] = &[
    Client::new("typescript", Program::node("typescript", "client.mjs"), &DEMO),
    Client::new("python", Program::python("python", "client.py"), &DEMO),
    Client::new("rmcp", Program::rust("steadfast-interop-rmcp"), &DEMO),
    Client::new("go", Program::Go { folder: "go" }, &DEMO),
    Client {
        // After a cut this SDK does not resume, and the caller gets no error.
        cannot: &["dropped-early", "dropped-midway", "dropped-twice"],
        ..Client::new("java", Program::Java { folder: "java", class: "Client" }, &DEMO)
    },
    Client::new("typescript-2", Program::node("typescript-2", "client.mjs"), &ERAS),
    Client::new("python-2", Program::python("python-2", "client.py"), &ERAS),
    Client::new("rmcp-eras", Program::rust("steadfast-interop-rmcp"), &ERAS),
    Client::new("demo-eras", Program::node("typescript-2", "demo.mjs"), &DEMO_ERAS),
    Client::new("python-requests", Program::python("python", "server_requests.py"), &SERVER_REQUESTS),
];

#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) script: &'static Script,
    /// Steps that the SDK cannot do. The client must report so itself, and show what happens.
    pub(super) cannot: &'static [&'static str],
}

impl Client {
    const fn new(name: &'static str, program: Program, script: &'static Script) -> Self {
        Self { name, program, script, cannot: &[] }
    }

    pub(super) fn runs(&self, script: &Script) -> bool {
        self.script.name == script.name
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_an_sdk_cannot_do_is_a_step_of_its_script() {
        for client in CLIENTS {
            for step in client.cannot {
                assert!(client.script.steps.contains(step), "{} has no {step}", client.name);
            }
        }
    }

    /// So that what is fetched and built for the client of an SDK serves for its server as well.
    #[test]
    fn clients_and_servers_of_an_sdk_have_one_version() {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |path: &str| fs::read_to_string(interop.join(path)).unwrap();
        let after = |text: String, mark: &str| text.split_once(mark).unwrap().1.to_owned();
        let go = |side: &str| {
            after(read(&format!("{side}/go/go.mod")), "\n\n") + &read(&format!("{side}/go/go.sum"))
        };
        assert_eq!(go("clients"), go("servers"));
        let java = |side: &str| {
            let sdk = after(read(&format!("{side}/java/pom.xml")), "<artifactId>mcp</artifactId>");
            sdk.split_once("</version>").unwrap().0.trim().to_owned()
        };
        assert_eq!(java("clients"), java("servers"));
    }
}
