//! The cost of a call and of an idle session, by what Redis reports: its commands and its memory.

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
    /// All commands that the server received meanwhile, by name, without those inside scripts.
    commands: BTreeMap<String, u64>,
    idle: u32,
    bytes: u64,
}

/// Measures one call after the other, on a gateway without other clients.
pub(super) fn cost(gateway: &Peer, server: &RedisServer, options: &Nodes) -> Result<Cost, Error> {
    let mut redis = RedisConnection::open(server.port())?;
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
    // A warmup: the gateway loads scripts and makes lists.
    load::run(&plan(10))?;
    let monitor = Monitor::start(server.port())?;
    load::run(&plan(options.calls))?;
    let commands = monitor.commands(&mut redis)?;

    let before = redis.bytes()?;
    load::runtime(1)?.block_on(fill(&running, options.idle))?;
    let bytes = redis.bytes()?.saturating_sub(before);
    Ok(Cost { calls: options.calls, commands, idle: options.idle, bytes })
}

impl Cost {
    /// A few of them open the session, are heartbeats of the node, or look for expired sessions.
    fn per_call(&self) -> f64 {
        self.commands.values().sum::<u64>() as f64 / self.calls as f64
    }

    fn per_session(&self) -> f64 {
        self.bytes as f64 / f64::from(self.idle)
    }

    pub(super) fn lines(&self) -> [String; 2] {
        let (each, bytes) = (self.per_call(), self.per_session());
        let all: Vec<String> = self.commands.iter().map(|(name, count)| format!("{name} {count}")).collect();
        // One command in fifty may open the session, be a heartbeat of the node or a sweep.
        let is_met = met(each <= ROUND_TRIPS * 1.02);
        [
            format!(
                "commands per call on Redis: {each:.3} (target {ROUND_TRIPS}: {is_met}); of {} calls, their session's opening, the \
                 heartbeats and the sweep meanwhile: {}",
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
            "commands_per_call": self.per_call(),
            "commands": self.commands,
            "idle_session_bytes": self.per_session(),
        })
    }
}

/// A connection that receives a line for every command (`MONITOR`). The counters of the server do
/// not separate commands of clients from commands inside scripts, which cost no round trip. Here
/// the latter have `lua` as their origin.
struct Monitor(BufReader<TcpStream>);

impl Monitor {
    /// A command that marks the end of the count.
    const END: &str = "end-of-count";

    fn start(port: u16) -> Result<Self, Error> {
        let mut redis = RedisConnection::open(port)?;
        redis.command("MONITOR")?;
        Ok(Self(redis.0))
    }

    /// Returns the commands since the start.
    fn commands(self, redis: &mut RedisConnection) -> Result<BTreeMap<String, u64>, Error> {
        redis.command(&format!("ECHO {}", Self::END))?;
        let mut commands = BTreeMap::new();
        for line in self.0.lines() {
            let line = line?;
            if line.ends_with(&format!("\"{}\"", Self::END)) {
                return Ok(commands);
            }
            if let Some(name) = client_command(&line) {
                *commands.entry(name.to_lowercase()).or_default() += 1;
            }
        }
        Err("the Redis monitor ended".into())
    }
}

/// Returns the name of a command that came over the network, from a line such as
/// `+1700000000.5 [0 127.0.0.1:4242] "GET" "key"`.
fn client_command(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(" [")?;
    let (from, command) = rest.split_once("] ")?;
    let name = command.strip_prefix('"')?.split('"').next()?;
    (!from.ends_with(" lua")).then_some(name)
}

/// A connection for commands that fit on one line.
pub(super) struct RedisConnection(BufReader<TcpStream>);

impl RedisConnection {
    pub(super) fn open(port: u16) -> Result<Self, Error> {
        Ok(Self(BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)))
    }

    fn command(&mut self, command: &str) -> Result<String, Error> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        self.reply()
    }

    /// Returns the text of a reply. The elements of a list are its lines.
    fn reply(&mut self) -> Result<String, Error> {
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
                    (0..rest.parse::<usize>()?).map(|_| self.reply()).collect();
                Ok(parts?.join("\n"))
            }
            "-" => Err(format!("Redis says {rest}").into()),
            _ => Ok(rest.to_owned()),
        }
    }

    /// Returns the bytes that the server has allocated.
    pub(super) fn used_memory(&mut self) -> Result<u64, Error> {
        let memory = self.command("INFO memory")?;
        let line = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
        Ok(line.ok_or("Redis does not say what it has allocated")?.trim().parse()?)
    }

    /// Returns the sum of the memory of all keys.
    fn bytes(&mut self) -> Result<u64, Error> {
        let keys = self.command("KEYS *")?;
        let mut bytes = 0;
        for key in keys.lines() {
            bytes += self.command(&format!("MEMORY USAGE {key} SAMPLES 0"))?.parse::<u64>().unwrap_or(0);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::client_command;

    #[test]
    fn commands_inside_scripts_do_not_count() {
        assert_eq!(
            client_command(r#"+1700000000.5 [0 127.0.0.1:4242] "EVALSHA" "0f" "2" "a b" "] x""#),
            Some("EVALSHA")
        );
        assert_eq!(
            client_command(r#"+1700000000.5 [0 [::1]:4242] "ZADD" "{t}:agenda" "1" "x""#),
            Some("ZADD")
        );
        assert_eq!(client_command(r#"+1700000000.5 [0 lua] "HGET" "k" "=""#), None);
        assert_eq!(client_command("+OK"), None);
    }
}
