//! The benchmark `streams`: the memory of the gateway and of its sockets for an attached idle
//! stream.

use std::io::Write as _;

use clap::Args;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::peer::Peer;
use crate::load::target::{Connection, Target};
use crate::{Error, load};

#[derive(Debug, Args)]
pub(crate) struct Streams {
    /// Sessions, each with one client that reads an idle stream. A gateway has two sockets for
    /// each: 9,000 fit under the limit of 20,000 descriptors that many systems have.
    #[arg(long, default_value_t = 9_000)]
    streams: usize,
    /// Worker threads of the gateway.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// The target for one stream in bytes, with all sockets.
const TARGET: u64 = 16 << 10;
/// How many streams there are between two lines of progress.
const TICK: usize = 1000;

pub(super) fn run(options: &Streams) -> Result<(), Error> {
    let threads = options.threads.to_string();
    let args = ["proxy", "steadfast", "--store", "memory:", "--threads", &threads];
    let peer = Peer { upstream: Some(vec!["fast".to_owned()]), ..Peer::new("steadfast memory", &args) };
    let running = peer.start()?;
    load::runtime(1)?.block_on(async {
        let target = Target::parse(running.url())?;
        // Not counted, so that the server has made its one-time allocations.
        let mut held = vec![listen(&target).await?];
        let (before, pages) = (running.resident()?, socket_pages()?);
        for count in 1..=options.streams {
            held.push(listen(&target).await?);
            if count % TICK == 0 {
                eprintln!("{count} of {} streams", options.streams);
            }
        }
        let (after, pages_after) = (running.resident()?, socket_pages()?);
        let each = after.saturating_sub(before) / options.streams as u64;
        // All sockets of this machine, also those of the clients and of the server.
        let sockets = pages_after.saturating_sub(pages) * 4096 / options.streams as u64;
        let met = if each + sockets <= TARGET { "met" } else { "missed" };
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{} attached idle streams: {each} bytes of the gateway each,", options.streams)?;
        writeln!(stdout, "{sockets} bytes each in the buffers of all sockets; target {TARGET}: {met}")?;
        let report = json!({
            "bench": "streams", "streams": options.streams, "gateway_bytes": each, "socket_bytes": sockets,
        });
        writeln!(stdout, "{report}")?;
        drop(held);
        Ok(())
    })
}

/// Opens a session and its standalone stream.
async fn listen(target: &Target) -> Result<TcpStream, Error> {
    let session = target.open_session_over(&mut Connection::open(target).await?).await?;
    let mut stream = target.connect().await?;
    stream.write_all(&target.listen(&session)).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    if head != *b"HTTP/1.1 200" {
        return Err(format!("a stream was refused: {}", String::from_utf8_lossy(&head)).into());
    }
    Ok(stream)
}

/// Returns the number of pages that the system uses for TCP.
fn socket_pages() -> Result<u64, Error> {
    let text = std::fs::read_to_string("/proc/net/sockstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:")).ok_or("no TCP in sockstat")?;
    let pages =
        line.split_whitespace().skip_while(|word| *word != "mem").nth(1).ok_or("no mem in sockstat")?;
    Ok(pages.parse()?)
}
