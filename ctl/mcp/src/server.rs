//! The protocol library's handler: lists the tools and carries out their calls.

use super::answer::Answer;
use super::call::call;
use super::lines::RawValue;
use super::session::Session;
use super::tools::{self, Tool};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use std::sync::Arc;
use tokio::sync::RwLock;

/// One client's server.
pub struct Server {
    session: Arc<Session>,
    tools: Arc<Vec<Tool>>,
    /// Taken in the order of the requests: by those that change something alone, by others together.
    order: Arc<RwLock<()>>,
}

impl Server {
    /// A server of that session.
    pub fn new(session: Session) -> Server {
        Server {
            session: Arc::new(session),
            tools: Arc::new(tools::all()),
            order: Arc::default(),
        }
    }

    /// Carries out a call once its turn has come.
    async fn call(
        &self,
        at: usize,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answer, ErrorData> {
        let (session, tools) = (self.session.clone(), self.tools.clone());
        let arguments = request.arguments.unwrap_or_default();
        let (_alone, _together) = match self.tools[at].changes {
            true => (Some(self.order.write().await), None),
            false => (None, Some(self.order.read().await)),
        };
        if context.ct.is_cancelled() {
            return Err(ErrorData::invalid_request(
                "cancelled before it began",
                None,
            ));
        }
        let raw = context.extensions.get::<RawValue>().cloned();
        let work = move || call(&session, &tools[at], arguments, raw);
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|e| ErrorData::internal_error(e.to_string(), None))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut info =
            ServerConfig::new(capabilities).with_instructions(instructions(&self.session));
        info.server_info = Implementation::new("agentvfs", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.iter().map(Tool::described).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(at) = self.tools.iter().position(|tool| tool.name == request.name) else {
            let why = format!("there is no tool {:?}; tools/list lists all", request.name);
            return Err(ErrorData::invalid_params(why, None));
        };
        let answer = self.call(at, request, &context).await?;
        Ok(CallToolResult::from(answer).into())
    }
}

/// A server where there is no workspace.
pub struct Nothing;

impl ServerHandler for Nothing {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let why = "This directory is in no workspace of agentvfs, so there are no tools.";
        let mut info = ServerConfig::new(capabilities).with_instructions(why.to_owned());
        info.server_info = Implementation::new("agentvfs", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(Vec::new()))
    }
}

/// What a client tells its model about this server.
fn instructions(session: &Session) -> String {
    format!(
        "Files of the workspace {} (branch {}), which is mounted at {}. Paths start at its root. \
         Every change can be reversed: checkpoint before risky changes, rollback to go back to \
         it, undo to reverse a rollback, tool_undo to undo one call of yours. diff shows what \
         changed since the last checkpoint. Other \
         programs that use the mount see these changes at once, and their changes are visible here.",
        session.workspace,
        session.branch,
        session.mount.display()
    )
}
