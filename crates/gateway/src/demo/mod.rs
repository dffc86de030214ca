//! The built-in demo server: small tools that show what sessions are good for.
#![expect(deprecated, reason = "what 2026-07-28 deprecates is alive in every revision before")]

mod chatter;
mod council;
mod countdown;
mod fortune;
mod notebook;
mod tool;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, LoggingLevel,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, SetLevelRequestParams,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use steadfast_wire::Mutex;

use tool::DemoTool;

#[derive(Debug)]
pub(crate) struct Demo {
    /// The log level of the client. It is lost with the process, as in any server that keeps it in
    /// a field.
    level: Mutex<LoggingLevel>,
}

impl Default for Demo {
    fn default() -> Self {
        Self { level: Mutex::new(LoggingLevel::Info) }
    }
}

const TOOLS: &[DemoTool] = &[countdown::TOOL, chatter::TOOL, notebook::TOOL, fortune::TOOL, council::TOOL];

impl ServerHandler for Demo {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_logging().build();
        let mut info = ServerConfig::default();
        info.capabilities = capabilities;
        info.server_info = Implementation::new("steadfast-demo", env!("CARGO_PKG_VERSION"));
        info.instructions = Some("Try `countdown`, and cut the connection while it runs.".into());
        info
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.level.lock() = request.level;
        Ok(())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.iter().map(DemoTool::describe).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = tool::Arguments(request.arguments.clone().unwrap_or_default());
        let result: CallToolResult = match &*request.name {
            "fortune" => return fortune::run(&request, context).await,
            "council" => return council::run(&arguments, &request, context).await,
            "countdown" => countdown::run(&arguments, context).await?,
            "chatter" => {
                let level = *self.level.lock();
                chatter::run(&arguments, level, context).await?
            }
            "notebook" => notebook::run(&arguments, context).await?,
            other => return Err(ErrorData::invalid_params(format!("there is no tool {other:?}"), None)),
        };
        Ok(result.into())
    }
}

impl Demo {}
