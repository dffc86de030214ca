//! The table of runs. To add one, add a row.

/// The suite, as its alias in `interop/conformance/package.json`.
const NEWEST: &str = "conformance";
/// The version that the name alone still leads to.
const PUBLISHED: &str = "conformance-0.1";

/// What the gateway is shown to keep: every row has one of a server of its own above it.
pub(super) const THROUGH: &str = "gateway-";

/// Our client. Who gets tokens for it is not its business, so the suite's `auth/` scenarios are not.
const CLIENT: Subject = Subject::Client;
/// The gateway's side towards servers, with our client before it.
const THROUGH_GATEWAY: Subject = Subject::ClientThroughGateway;

pub(super) const RUNS: &[Run] = &[
    Run {
        name: "server-2026-07-28",
        version: NEWEST,
        subject: Subject::Server,
        arguments: &[&["--requirements", "2026-07-28"]],
        scenarios: 50,
    },
    Run {
        name: "server-2025-11-25",
        version: NEWEST,
        subject: Subject::Server,
        arguments: &[&["--requirements", "2025-11-25"]],
        scenarios: 33,
    },
    Run {
        name: "server-2025-06-18",
        version: NEWEST,
        subject: Subject::Server,
        arguments: &[&["--suite", "all", "--spec-version", "2025-06-18"]],
        scenarios: 27,
    },
    Run {
        name: "server-2025-03-26",
        version: NEWEST,
        subject: Subject::Server,
        arguments: &[&["--scenario", "server-session-lifecycle", "--spec-version", "2025-03-26"]],
        scenarios: 1,
    },
    Run {
        name: "server-published",
        version: PUBLISHED,
        subject: Subject::Server,
        arguments: &[&["--suite", "all"]],
        scenarios: 32,
    },
    Run {
        name: "gateway-2026-07-28",
        version: NEWEST,
        subject: Subject::Gateway,
        arguments: &[&["--requirements", "2026-07-28"]],
        scenarios: 50,
    },
    Run {
        name: "gateway-2025-11-25",
        version: NEWEST,
        subject: Subject::Gateway,
        arguments: &[&["--requirements", "2025-11-25"]],
        scenarios: 33,
    },
    Run {
        name: "gateway-2025-06-18",
        version: NEWEST,
        subject: Subject::Gateway,
        arguments: &[&["--suite", "all", "--spec-version", "2025-06-18"]],
        scenarios: 27,
    },
    Run {
        name: "gateway-published",
        version: PUBLISHED,
        subject: Subject::Gateway,
        arguments: &[&["--suite", "all"]],
        scenarios: 32,
    },
    Run {
        name: "client-2026-07-28",
        version: NEWEST,
        subject: CLIENT,
        arguments: &[
            &["--scenario", "tools_call", "--spec-version", "2026-07-28"],
            &["--scenario", "request-metadata"],
            &["--scenario", "sep-2322-client-request-state"],
            &["--scenario", "http-standard-headers"],
            &["--scenario", "http-custom-headers"],
            &["--scenario", "http-invalid-tool-headers"],
            &["--scenario", "json-schema-ref-no-deref"],
            &["--scenario", "json-schema-2020-12-preservation", "--spec-version", "2026-07-28"],
        ],
        scenarios: 8,
    },
    Run {
        name: "client-2025-11-25",
        version: NEWEST,
        subject: CLIENT,
        arguments: &[
            &["--scenario", "initialize"],
            &["--scenario", "tools_call", "--spec-version", "2025-11-25"],
            &["--scenario", "elicitation-sep1034-client-defaults"],
            &["--scenario", "sse-retry"],
            &["--scenario", "json-schema-2020-12-preservation", "--spec-version", "2025-11-25"],
        ],
        scenarios: 5,
    },
    Run {
        name: "upstream-2026-07-28",
        version: NEWEST,
        subject: THROUGH_GATEWAY,
        arguments: &[
            &["--scenario", "tools_call", "--spec-version", "2026-07-28"],
            &["--scenario", "request-metadata"],
            &["--scenario", "sep-2322-client-request-state"],
            &["--scenario", "http-standard-headers"],
            &["--scenario", "http-custom-headers"],
            &["--scenario", "json-schema-2020-12-preservation", "--spec-version", "2026-07-28"],
        ],
        scenarios: 6,
    },
    Run {
        name: "upstream-2025-11-25",
        version: NEWEST,
        subject: THROUGH_GATEWAY,
        arguments: &[
            &["--scenario", "initialize"],
            &["--scenario", "tools_call", "--spec-version", "2025-11-25"],
            &["--scenario", "elicitation-sep1034-client-defaults"],
            &["--scenario", "sse-retry"],
            &["--scenario", "json-schema-2020-12-preservation", "--spec-version", "2025-11-25"],
        ],
        scenarios: 5,
    },
    Run {
        name: "client-published",
        version: PUBLISHED,
        subject: CLIENT,
        arguments: &[
            &["--scenario", "initialize"],
            &["--scenario", "tools_call"],
            &["--scenario", "elicitation-sep1034-client-defaults"],
            &["--scenario", "sse-retry"],
        ],
        scenarios: 4,
    },
];

#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) subject: Subject,
    /// The suite is started once for each of these: it takes either one scenario, or all that it has.
    pub(super) arguments: &'static [&'static [&'static str]],
    /// How many scenarios there are at least. A suite that tries fewer has shown nothing.
    pub(super) scenarios: usize,
}

/// What is looked at.
#[derive(Debug)]
pub(super) enum Subject {
    /// The fixture server.
    Server,
    /// The gateway, in front of the fixture server.
    Gateway,
    /// Our client, through the gateway: it starts one in front of the server that it is given.
    ClientThroughGateway,
    /// Our client. The suite starts it for each scenario, with the URL of a server of its own as
    /// the last argument; `MCP_CONFORMANCE_SCENARIO` says what to try.
    Client,
}
