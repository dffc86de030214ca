//! One row of the table: a request, and what has to come of it.

/// A well-behaved call. A row spoils one thing about it.
pub(crate) const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}"#;

/// A request and its consequence. Texts may contain `<names>` of things that the world of the test
/// fills in.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) target: &'static str,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
    pub(crate) expect: Expect,
}

/// How the body is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// With the body's length.
    Length,
    /// With this length, whatever the body has.
    Announced(usize),
    Chunked,
    /// Not by us. A row may have headers of its own for that.
    None,
}

/// What has to come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// A JSON-RPC error with this status. The id is that of the request where it could be read.
    Refused { status: u16, code: i64, id: Option<&'static str>, says: &'static str },
    /// A refusal before anything of ours sees the request.
    Unheard { status: u16 },
    /// 202 and nothing else.
    Taken,
    /// A stream whose answer has this id and a result. It is there to show that a strange request
    /// is a good one.
    Served { id: &'static str },
    /// A stream whose answer has this id and this error.
    Failed { id: &'static str, code: i64 },
    /// What [`Expect::Served`] is to a request without a session: plain JSON.
    Answered { id: &'static str },
    /// And [`Expect::Failed`].
    FailedPlainly { id: &'static str, code: i64 },
}

/// A POST to the session of the test.
pub(crate) fn post(name: &'static str) -> Row {
    let row = bare(name, "POST").set("content-type", "application/json");
    row.set("accept", "application/json, text/event-stream").body(CALL)
}

pub(crate) fn get(name: &'static str) -> Row {
    bare(name, "GET").set("accept", "text/event-stream")
}

pub(crate) fn delete(name: &'static str) -> Row {
    bare(name, "DELETE")
}

/// A request of any verb, without a body.
pub(crate) fn bare(name: &'static str, verb: &'static str) -> Row {
    let row = Row {
        name,
        verb,
        target: "/mcp",
        headers: Vec::new(),
        body: Vec::new(),
        framing: Framing::None,
        expect: Expect::Taken,
    };
    row.set("host", "localhost").set("mcp-session-id", "<session>").set("mcp-protocol-version", "2025-11-25")
}

/// An opening of a session, with these `params`.
pub(crate) fn initialize(name: &'static str, rest: &str) -> Row {
    let body = format!(r#"{{"jsonrpc":"2.0","id":"open","method":"initialize"{rest}}}"#);
    post(name).without("mcp-session-id").without("mcp-protocol-version").body(body)
}

impl Row {
    /// Gives a header this one value.
    pub(crate) fn set(self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).add(name, value)
    }

    /// Sends a header once more.
    pub(crate) fn add(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.headers.retain(|(sent, _)| *sent != name);
        self
    }

    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self.framing = Framing::Length;
        self
    }

    pub(crate) fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    pub(crate) fn target(mut self, target: &'static str) -> Self {
        self.target = target;
        self
    }

    /// In the session of 2025-03-26, which has batches.
    pub(crate) fn old(self) -> Self {
        self.set("mcp-session-id", "<old>").set("mcp-protocol-version", "2025-03-26")
    }

    /// A refusal that cannot name a request.
    pub(crate) fn refused(mut self, status: u16, code: i64, says: &'static str) -> Self {
        self.expect = Expect::Refused { status, code, id: None, says };
        self
    }

    /// A refusal that names the request, by the JSON text of its id.
    pub(crate) fn refused_id(mut self, id: &'static str, status: u16, code: i64, says: &'static str) -> Self {
        self.expect = Expect::Refused { status, code, id: Some(id), says };
        self
    }

    pub(crate) fn unheard(mut self, status: u16) -> Self {
        self.expect = Expect::Unheard { status };
        self
    }

    pub(crate) fn taken(mut self) -> Self {
        self.expect = Expect::Taken;
        self
    }

    pub(crate) fn served(mut self, id: &'static str) -> Self {
        self.expect = Expect::Served { id };
        self
    }

    pub(crate) fn failed(mut self, id: &'static str, code: i64) -> Self {
        self.expect = Expect::Failed { id, code };
        self
    }

    pub(crate) fn answered(mut self, id: &'static str) -> Self {
        self.expect = Expect::Answered { id };
        self
    }

    pub(crate) fn failed_plainly(mut self, id: &'static str, code: i64) -> Self {
        self.expect = Expect::FailedPlainly { id, code };
        self
    }

    /// The bytes to send.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.verb, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        match self.framing {
            Framing::Length => self.announce(&mut bytes, self.body.len()),
            Framing::Announced(length) => self.announce(&mut bytes, length),
            Framing::Chunked => {
                bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
                for chunk in self.body.chunks(16 << 10) {
                    bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            }
            Framing::None => {
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(&self.body);
            }
        }
        bytes
    }

    fn announce(&self, bytes: &mut Vec<u8>, length: usize) {
        bytes.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
        bytes.extend_from_slice(&self.body);
    }
}
