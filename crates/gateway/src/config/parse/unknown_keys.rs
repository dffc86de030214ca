//! Finds keys that the schema does not have, and suggests the key that was meant.

use serde_json::Value;
use toml::de::{DeArray, DeTable, DeValue};

use super::json_schema;
use super::toml_positions::SourceTree;
use crate::config::config_fault::ConfigFault;

/// The lowest similarity (Jaro-Winkler, 0 to 1) of a name that is suggested.
const MIN_SIMILARITY: f64 = 0.8;

pub(crate) fn find(tree: &SourceTree<'_>, schema: &Value) -> Vec<ConfigFault> {
    let mut search = Search { tree, schema, faults: Vec::new() };
    search.table(tree.root(), schema, "");
    search.faults
}

struct Search<'a> {
    tree: &'a SourceTree<'a>,
    schema: &'a Value,
    faults: Vec<ConfigFault>,
}

impl Search<'_> {
    fn table(&mut self, table: &DeTable<'_>, node: &Value, path: &str) {
        let Some(known) = json_schema::keys(self.schema, node) else { return };
        for (name, value) in table {
            let key = if path.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{path}.{}", name.get_ref())
            };
            match json_schema::property(self.schema, node, name.get_ref()) {
                Some(node) => self.value(value.get_ref(), node, &key),
                None => self.faults.push(ConfigFault {
                    position: self.tree.position(name.span().start),
                    key,
                    what: "unknown key".into(),
                    remedy: self.suggestion(name.get_ref(), &known),
                }),
            }
        }
    }

    fn value(&mut self, value: &DeValue<'_>, node: &Value, path: &str) {
        match value {
            DeValue::Table(table) => self.table(table, node, path),
            DeValue::Array(array) => self.array(array, node, path),
            _ => {}
        }
    }

    fn array(&mut self, array: &DeArray<'_>, node: &Value, path: &str) {
        let Some(items) = json_schema::items(self.schema, node) else { return };
        for (index, item) in array.iter().enumerate() {
            self.value(item.get_ref(), items, &format!("{path}[{index}]"));
        }
    }

    fn suggestion(&self, name: &str, known: &[&str]) -> String {
        if let Some(table) = self.table_with(name) {
            return format!("`{name}` is a key of `{table}`");
        }
        let similarity = |known: &&str| strsim::jaro_winkler(name, known);
        let nearest = known.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
        if let Some(nearest) = nearest.filter(|nearest| similarity(nearest) >= MIN_SIMILARITY) {
            return format!("did you mean `{nearest}`?");
        }
        format!("one of {}; `steadfast config schema` describes the keys", known.join(", "))
    }

    /// Returns the table that has a key of this name.
    fn table_with(&self, name: &str) -> Option<String> {
        let root = json_schema::keys(self.schema, self.schema)?;
        if root.contains(&name) {
            return Some("the top of the file".into());
        }
        let endpoint = json_schema::property(self.schema, self.schema, "defaults")?;
        let homes = [(self.schema, ""), (endpoint, "endpoint")];
        if json_schema::keys(self.schema, endpoint)?.contains(&name) {
            return Some("[[endpoint]]".into());
        }
        homes.into_iter().find_map(|(node, home)| {
            json_schema::keys(self.schema, node)?.into_iter().find_map(|table| {
                let inner = json_schema::property(self.schema, node, table)?;
                let is_there = json_schema::keys(self.schema, inner)?.contains(&name);
                let dot = if home.is_empty() { "" } else { "." };
                is_there.then(|| format!("[{home}{dot}{table}]"))
            })
        })
    }
}
