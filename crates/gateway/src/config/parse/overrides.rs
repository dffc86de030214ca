//! Values that override the file: environment variables and flags.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// The prefix of variables that set a key. The path of the key follows, with two underscores
/// between a table and its key: `STEADFAST__ADMIN__LISTEN` is `listen` of `[admin]`.
const PREFIX: &str = "STEADFAST__";

/// The value of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    /// The name of the variable or the flag.
    pub(crate) origin: String,
    pub(crate) path: Vec<String>,
    pub(crate) value: Value,
}

impl Override {
    pub(crate) fn new(origin: impl Into<String>, path: &[&str], value: impl Into<Value>) -> Self {
        Self {
            origin: origin.into(),
            path: path.iter().map(|step| (*step).to_owned()).collect(),
            value: value.into(),
        }
    }

    pub(crate) fn key(&self) -> String {
        self.path.join(".")
    }

    /// Sets the value in `root`, and creates the tables on its path.
    pub(crate) fn put(&self, root: &mut Table) {
        let Some((last, tables)) = self.path.split_last() else { return };
        let mut table = root;
        for step in tables {
            let slot = table.entry(step.clone()).or_insert_with(|| Value::Table(Table::new()));
            if !slot.is_table() {
                *slot = Value::Table(Table::new());
            }
            let Value::Table(next) = slot else { return };
            table = next;
        }
        table.insert(last.clone(), self.value.clone());
    }

    /// Returns a document with this value only.
    pub(crate) fn alone(&self) -> Table {
        let mut root = Table::new();
        self.put(&mut root);
        root
    }
}

pub(crate) fn from_environment(variables: &BTreeMap<String, String>) -> Vec<Override> {
    let overrides = variables.iter().filter_map(|(name, text)| {
        let path = name.strip_prefix(PREFIX)?.to_ascii_lowercase();
        let path = path.split("__").map(str::to_owned).collect();
        Some(Override { origin: name.clone(), path, value: parse(text) })
    });
    overrides.collect()
}

/// Numbers, `true`, `false` and lists have their TOML type. Everything else is text.
fn parse(text: &str) -> Value {
    let is_literal = text.parse::<i64>().is_ok() || matches!(text, "true" | "false") || text.starts_with('[');
    let parsed = || toml::from_str::<Table>(&format!("x = {text}")).ok()?.remove("x");
    is_literal.then(parsed).flatten().unwrap_or_else(|| Value::String(text.to_owned()))
}
