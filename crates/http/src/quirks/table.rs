//! The table of quirks. `docs/clients.md` has it as well; a test keeps the two equal.

use super::{Effect, Quirk, Sign, Versions};

/// Every known quirk.
pub const TABLE: &[Quirk] = &[
    Quirk {
        effect: Effect::IsolateDuplicateIds,
        client: "claude.ai, Claude Desktop (connectors)",
        sign: Sign::Names(&["Anthropic/ClaudeAI", "Anthropic", "claude-ai"]),
        versions: Versions::ALL,
        behaviour: "Sends `id: 1` with every request, and uses one session for several chats.",
        evidence: "https://github.com/anthropics/claude-ai-mcp/issues/539, https://github.com/Epistates/turbomcp/issues/25",
    },
    Quirk {
        effect: Effect::RefuseInBand,
        client: "VS Code",
        sign: Sign::Names(&["Visual Studio Code", "Visual Studio Code - Insiders"]),
        versions: Versions::ALL,
        behaviour: "Gives the server up after any status from 300 on; after 400 and 404 it opens a new session.",
        evidence: "https://github.com/microsoft/vscode/blob/main/src/vs/workbench/api/common/extHostMcp.ts",
    },
    Quirk {
        effect: Effect::RefuseInBand,
        client: "Zed",
        sign: Sign::Names(&["Zed"]),
        versions: Versions::ALL,
        behaviour: "Only logs a status other than 2xx; the request waits for 60 seconds.",
        evidence: "https://github.com/zed-industries/zed/blob/main/crates/context_server/src/transport/http.rs",
    },
    Quirk {
        effect: Effect::RefuseInBand,
        client: "Gemini CLI",
        sign: Sign::Names(&["gemini-cli-mcp-client*"]),
        versions: Versions::ALL,
        behaviour: "Marks the server as disconnected after any error of the transport.",
        evidence: "https://github.com/google-gemini/gemini-cli/blob/main/packages/core/src/tools/mcp-client.ts",
    },
    Quirk {
        effect: Effect::DiscoverNotFound,
        client: "Goose",
        sign: Sign::Names(&["goose*"]),
        versions: Versions { from: Some("1.49"), before: None },
        behaviour: "Opens a session only after an unknown `server/discover`; a result without 2026-07-28 is an error.",
        evidence: "https://github.com/aaif-goose/goose/issues/11965; measured with rmcp 3.8",
    },
    Quirk {
        effect: Effect::DiscoverNotFound,
        client: "Codex",
        sign: Sign::Names(&["codex-mcp-client"]),
        versions: Versions::ALL,
        behaviour: "As Goose, if it sends `server/discover`.",
        evidence: "https://github.com/openai/codex/tree/main/codex-rs/rmcp-client; measured with rmcp 3.8",
    },
    Quirk {
        effect: Effect::DiscoverNotFound,
        client: "programs on rmcp",
        sign: Sign::NoUserAgent,
        versions: Versions::ALL,
        behaviour: "As Goose (`ClientLifecycleMode::Auto`).",
        evidence: "measured with rmcp 3.8",
    },
];
