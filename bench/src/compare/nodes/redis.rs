//! What Redis says of the cost of a call and of an idle session: its own counters, not ours.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use serde_json::json;
use steadfast_store::testing::server::RedisServer;

use super::{IDLE_BYTES, Nodes, ROUND_TRIPS, fill, met};
use crate::Error;
use crate::compare::peer::Peer;
use crate::load::{self, Plan};

#[derive(Debug)]
pub(super) struct Cost {
    calls: u64,
    /// Commands that the server was sent meanwhile, by name.
    commands: BTreeMap<String, u64>,
    idle: usize,
    bytes: u64,
}

/// Measures one after the other, on a gateway that nobody else uses.
pub(super) fn cost(gateway: &Peer, server: &RedisServer, options: &Nodes) -> Result<Cost, Error> {
    let mut link = Link::open(server.port())?;
    let running = gateway.start()?;
    let plan = |requests| Plan {
        url: running.url().to_owned(),
        connections: 1,
        sessions: 1,
        seconds: 0.0,
        requests: Some(requests),
        warmup: 0.0,
        threads: 1,
        constant: false,
        tool: gateway.tool.to_owned(),
    };
    // Scripts are loaded, lists are made.
    load::run(&plan(10))?;
    link.ask("CONFIG RESETSTAT")?;
    load::run(&plan(options.calls))?;
    let commands = commands(&link.ask("INFO commandstats")?);

    let before = link.bytes()?;
    load::runtime(1)?.block_on(fill(&running, options.idle))?;
    let bytes = link.bytes()?.saturating_sub(before);
    Ok(Cost { calls: options.calls, commands, idle: options.idle, bytes })
}

impl Cost {
    /// The calls of scripts, which is what a call waits for. A handful of them open the session and show that the node is alive.
    fn per_call(&self) -> f64 {
        let scripts = self.commands.iter().filter(|(name, _)| name.starts_with("eval"));
        scripts.map(|(_, count)| *count).sum::<u64>() as f64 / self.calls as f64
    }

    fn per_session(&self) -> f64 {
        self.bytes as f64 / self.idle as f64
    }

    pub(super) fn lines(&self) -> [String; 2] {
        let (each, bytes) = (self.per_call(), self.per_session());
        let all: Vec<String> = self.commands.iter().map(|(name, count)| format!("{name} {count}")).collect();
        // One call in fifty may be the session's beginning and the node's heartbeat.
        let is_met = met(each <= ROUND_TRIPS * 1.02);
        [
            format!(
                "script calls per call on Redis: {each:.3} (target {ROUND_TRIPS}: {is_met}); of {} calls, their session's opening and \
                 the heartbeats meanwhile: {}",
                self.calls,
                all.join(", ")
            ),
            format!(
                "an idle session in Redis: {bytes:.0} bytes by MEMORY USAGE of all keys (target {IDLE_BYTES}: {})",
                met(bytes <= IDLE_BYTES)
            ),
        ]
    }

    pub(super) fn json(&self) -> serde_json::Value {
        json!({
            "server": "redis",
            "script_calls_per_call": self.per_call(),
            "commands": self.commands,
            "idle_session_bytes": self.per_session(),
        })
    }
}

/// The names and counts of `INFO commandstats`.
fn commands(info: &str) -> BTreeMap<String, u64> {
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        // Everything else is counted because a script does it, and costs no round trip.
        let is_sent = ["eval", "script", "ssubscribe", "subscribe"].iter().any(|sent| name.starts_with(sent));
        let count = rest.split(',').next()?.parse().ok()?;
        is_sent.then(|| (name.to_owned(), count))
    };
    info.lines().filter_map(count).collect()
}

/// A connection for questions on one line.
struct Link(BufReader<TcpStream>);

impl Link {
    fn open(port: u16) -> Result<Self, Error> {
        Ok(Self(BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)))
    }

    fn ask(&mut self, question: &str) -> Result<String, Error> {
        self.0.get_mut().write_all(format!("{question}\r\n").as_bytes())?;
        self.answer()
    }

    /// The text of an answer; the elements of a list are its lines.
    fn answer(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or("Redis closed the connection")?;
        match kind {
            "$" => {
                let mut text = vec![0; usize::try_from(rest.parse::<i64>()?.max(0))? + 2];
                self.0.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            "*" => {
                let parts: Result<Vec<String>, Error> =
                    (0..rest.parse::<usize>()?).map(|_| self.answer()).collect();
                Ok(parts?.join("\n"))
            }
            "-" => Err(format!("Redis says {rest}").into()),
            _ => Ok(rest.to_owned()),
        }
    }

    /// What all keys take, by their own account.
    fn bytes(&mut self) -> Result<u64, Error> {
        let keys = self.ask("KEYS *")?;
        let mut bytes = 0;
        for key in keys.lines() {
            bytes += self.ask(&format!("MEMORY USAGE {key} SAMPLES 0"))?.parse::<u64>().unwrap_or(0);
        }
        Ok(bytes)
    }
}
