//! The proxies in front of an upstream server. This process replaces itself by the proxy (`exec`),
//! so that the process that the benchmark started is the one that serves and that a kill ends.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};

use crate::Error;

/// The environment variable with the folder of the other proxies.
const PEERS: &str = "STEADFAST_BENCH_PEERS";

#[derive(Debug, Subcommand)]
pub(crate) enum Proxy {
    /// nginx as a plain reverse proxy.
    Nginx(Common),
    /// The `steadfast` command beside this one.
    Steadfast {
        #[command(flatten)]
        common: Common,
        /// The session store.
        #[arg(long, default_value = "memory:")]
        store: String,
    },
    /// The crate `mcp-proxy`.
    McpProxyRust(Common),
    /// The package `mcp-proxy` from PyPI.
    McpProxyPython(Common),
    /// A proxy made with FastMCP.
    Fastmcp(Common),
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The URL of the upstream server.
    #[arg(long)]
    upstream: String,
    /// Worker threads or processes.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Returns true if another proxy is installed.
pub(crate) fn has_peer(program: &str) -> bool {
    peers().is_some_and(|folder| folder.join(program).is_file())
}

fn peers() -> Option<PathBuf> {
    std::env::var_os(PEERS).map(PathBuf::from)
}

pub(super) fn exec(proxy: &Proxy) -> Result<(), Error> {
    let address = free_address()?;
    let (mut command, common) = match proxy {
        Proxy::Nginx(common) => (nginx(common, address)?, common),
        Proxy::Steadfast { common, store } => (steadfast(common, store, address)?, common),
        Proxy::McpProxyRust(common) => (mcp_proxy_rust(common, address)?, common),
        Proxy::McpProxyPython(common) => (mcp_proxy_python(common, address)?, common),
        Proxy::Fastmcp(common) => (fastmcp(common, address)?, common),
    };
    super::announce_at(address, if matches!(proxy, Proxy::McpProxyRust(_)) { "/" } else { "/mcp" })?;
    // The parent process reads the first line only, so the output of the proxy must not be that.
    let failure = command
        .env("TOKIO_WORKER_THREADS", common.threads.to_string())
        .stdout(std::process::Stdio::null())
        .exec();
    Err(format!("{} did not start: {failure}", command.get_program().display()).into())
}

/// Returns a free port, because few programs support port 0.
pub(super) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn steadfast(common: &Common, store: &str, address: SocketAddr) -> Result<Command, Error> {
    let program = std::env::current_exe()?.with_file_name("steadfast");
    let mut command = Command::new(program);
    command.args(["serve", "--upstream", &common.upstream, "--store", store]);
    command.args(["--listen", &address.to_string()]).env("RUST_LOG", "warn");
    Ok(command)
}

fn nginx(common: &Common, address: SocketAddr) -> Result<Command, Error> {
    let directory = std::env::current_dir()?;
    let upstream = common.upstream.trim_start_matches("http://");
    let (authority, _) = upstream.split_once('/').ok_or("the upstream has no path")?;
    let (threads, Common { upstream, .. }) = (common.threads, common);
    let text = format!(
        r#"daemon off;
worker_processes {threads};
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 10000; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    upstream server {{
        server {authority};
        keepalive 64;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://server;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 3600s;
        }}
    }}
}}
# before {upstream}
"#
    );
    std::fs::write(directory.join("nginx.conf"), text)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&directory).args(["-c", "nginx.conf"]);
    Ok(command)
}

fn mcp_proxy_rust(common: &Common, address: SocketAddr) -> Result<Command, Error> {
    let text = format!(
        "[proxy]\nname = \"bench\"\nversion = \"1\"\n\n[proxy.listen]\nhost = \"{}\"\nport = {}\n\n\
         [[backends]]\nname = \"fast\"\ntransport = \"http\"\nurl = \"{}\"\n\n[observability]\nlog_level = \"error\"\n",
        address.ip(),
        address.port(),
        common.upstream
    );
    std::fs::write("mcp-proxy.toml", text)?;
    let mut command = Command::new(peer("bin/mcp-proxy")?);
    command.args(["--config", "mcp-proxy.toml"]).env("RUST_LOG", "error");
    Ok(command)
}

/// This proxy translates between HTTP and stdio, in both directions. Two of them translate between
/// HTTP and HTTP.
fn mcp_proxy_python(common: &Common, address: SocketAddr) -> Result<Command, Error> {
    let program = peer("mcp-proxy/venv/bin/mcp-proxy")?;
    let mut command = Command::new(&program);
    command.args(["--host", &address.ip().to_string(), "--port", &address.port().to_string()]);
    command.args(["--log-level", "ERROR", "--pass-environment", "--"]).arg(program);
    command.args(["--transport", "streamablehttp", "--log-level", "ERROR", &common.upstream]);
    Ok(command)
}

fn fastmcp(common: &Common, address: SocketAddr) -> Result<Command, Error> {
    let text = format!(
        "import logging\nfrom fastmcp.server import create_proxy\nlogging.disable(logging.CRITICAL)\n\
         proxy = create_proxy({:?}, name=\"bench\")\n\
         proxy.run(transport=\"http\", host={:?}, port={}, path=\"/mcp\", show_banner=False, log_level=\"error\")\n",
        common.upstream,
        address.ip().to_string(),
        address.port()
    );
    std::fs::write("proxy.py", text)?;
    let mut command = Command::new(peer("fastmcp/venv/bin/python")?);
    command.arg("proxy.py");
    Ok(command)
}

fn peer(program: &str) -> Result<PathBuf, Error> {
    let folder = peers().ok_or_else(|| format!("{PEERS} is not set"))?;
    let path = folder.join(Path::new(program));
    if path.is_file() { Ok(path) } else { Err(format!("{} does not exist", path.display()).into()) }
}
