//! The table of runs of the conformance suite. To add a run, add a row.

/// The newest version of the suite, by its alias in `interop/conformance/package.json`.
const NEWEST: &str = "conformance";
/// The version that npm installs without a version number.
const PUBLISHED: &str = "conformance-0.1";

/// The prefix of runs through the gateway. Each has a corresponding run with the prefix `server-`.
pub(super) const GATEWAY_PREFIX: &str = "gateway-";

/// Our client. It does not fetch tokens, so it has no runs of the `auth/` scenarios.
const CLIENT: Subject = Subject::Client;
/// The gateway as a client of the suite's server, used by our client.
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
    /// The suite is started once for each of these. It accepts one scenario or all of them.
    pub(super) arguments: &'static [&'static [&'static str]],
    /// The minimal number of scenarios. A run with fewer fails.
    pub(super) scenarios: usize,
}

/// The program that the suite tests.
#[derive(Debug)]
pub(super) enum Subject {
    /// The fixture server.
    Server,
    /// The gateway, in front of the fixture server.
    Gateway,
    /// Our client, through the gateway. The client starts a gateway in front of the suite's server.
    ClientThroughGateway,
    /// Our client. The suite starts it for each scenario, with the URL of the suite's server as the
    /// last argument and the scenario in `MCP_CONFORMANCE_SCENARIO`.
    Client,
}
