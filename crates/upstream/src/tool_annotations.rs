//! Which tools are idempotent, by the annotations that the server gives them.
//!
//! A call whose outcome is unknown is repeated only if its tool has `readOnlyHint` or `idempotentHint`.
//! A server may show different tools to different principals, so annotations are kept per principal.
//! They come from, in this order:
//!
//! 1. the cache of this process, for [`CACHE_LIFETIME`];
//! 2. a record in the store, if processes share it, for [`LIFETIME`] after it was read from the server;
//! 3. `tools/list` in an upstream session of the principal (`tool_list.rs`). Concurrent calls share one
//!    read. After a failure calls count as not idempotent, and the next read waits longer each time.
//!
//! `notifications/tools/list_changed`, and an upstream session that was opened anew or moved, invalidate
//! the cache and the record. Other nodes notice at the end of [`CACHE_LIFETIME`].

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_engine::{Principal, Time};
use tokio::sync::{Notify, watch};

/// How long a process uses its copy before it compares it with the record in the store.
pub(crate) const CACHE_LIFETIME: Duration = Duration::from_secs(60);

/// How long annotations are used after the server was asked.
pub(crate) const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// When a call has them read again, while the old ones are still used.
pub(crate) const REFRESH_AFTER: Duration = Duration::from_secs(5 * 60);

/// Principals whose annotations a process keeps. At one more it drops all that are not being read.
const MAX_PRINCIPALS: usize = 4096;

/// Bytes of tool names that are kept for one principal. Tools beyond it count as not idempotent.
const MAX_NAME_BYTES: usize = 64 << 10;

/// The idempotent tools of one principal. Every other tool counts as not idempotent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdempotentTools(BTreeSet<String>);

/// What the record in the store holds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// When the server was asked, in milliseconds since 1970. `None`: the list has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) read_at: Option<u64>,
    #[serde(default)]
    pub(crate) idempotent: IdempotentTools,
}

/// What this process knows, for all principals of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct ToolAnnotations {
    slots: Mutex<Slots>,
    /// A record in the store was invalidated.
    record_written: Notify,
}

#[derive(Debug, Default)]
struct Slots {
    by_principal: HashMap<Principal, Slot>,
    /// Slots that were ever made, and invalidations.
    generations: u64,
}

#[derive(Debug, Default)]
struct Slot {
    known: Option<Known>,
    /// Changes with each invalidation: the result of a read that began before is not used.
    generation: u64,
    /// The read under way. A closed channel without a result belongs to a task that was dropped.
    reading: Option<watch::Receiver<Option<ReadResult>>>,
    failure: Option<Failure>,
    invalidating: Invalidating,
}

#[derive(Debug)]
struct Known {
    tools: Arc<IdempotentTools>,
    read_at: Time,
    cached_until: Time,
}

/// The last reads failed.
#[derive(Clone, Copy, Debug)]
struct Failure {
    delay: Duration,
    retry_at: Time,
}

/// Whether a task invalidates the record in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Invalidating {
    #[default]
    No,
    Yes,
    /// The list has changed again since the task began.
    Again,
}

/// Result of a read.
#[derive(Clone, Debug)]
pub(crate) enum ReadResult {
    Known(Arc<IdempotentTools>),
    /// The server did not answer, or not with a list.
    Failed,
    /// The upstream session that it was read in has ended: another session may be used.
    Abandoned,
}

/// How a caller gets the annotations.
#[derive(Debug)]
pub(crate) enum Lookup {
    Known(Arc<IdempotentTools>),
    /// The last read failed a moment ago.
    Unavailable,
    /// Another caller reads.
    Join(watch::Receiver<Option<ReadResult>>),
    /// The caller has to read, and send the result.
    Read(watch::Sender<Option<ReadResult>>),
}

impl IdempotentTools {
    /// Whether a `tools/call` with these parameters names one of them.
    pub(crate) fn are_called_by(&self, params: Option<&str>) -> bool {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
        }
        // Parameters may be large, and are not read without need.
        let params = params.filter(|_| !self.0.is_empty());
        let named = params.and_then(|params| serde_json::from_str::<Named<'_>>(params).ok());
        named.is_some_and(|named| self.0.contains(&*named.name))
    }

    /// Adds one page of `tools/list`: gives the cursor of the next one. `None` if it is not a page.
    pub(crate) fn add_page(&mut self, page: &[u8], limit: usize) -> Option<Option<String>> {
        #[derive(Deserialize)]
        struct Page {
            tools: Vec<Tool>,
            #[serde(rename = "nextCursor")]
            next: Option<String>,
        }
        #[derive(Deserialize)]
        struct Tool {
            name: String,
            #[serde(default)]
            annotations: Option<Annotations>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Annotations {
            read_only_hint: Option<bool>,
            idempotent_hint: Option<bool>,
        }
        let Page { tools, next } = serde_json::from_slice(page).ok()?;
        let mut bytes: usize = self.0.iter().map(String::len).sum();
        for Tool { name, annotations } in tools {
            let Annotations { read_only_hint, idempotent_hint } = annotations.unwrap_or_default();
            let is_idempotent = read_only_hint == Some(true) || idempotent_hint == Some(true);
            bytes += name.len();
            if is_idempotent && self.0.len() < limit && bytes <= MAX_NAME_BYTES {
                self.0.insert(name);
            }
        }
        Some(next)
    }
}

impl Stored {
    pub(crate) fn new(tools: &IdempotentTools, read_at: Time) -> Self {
        Self { read_at: Some(read_at.0), idempotent: tools.clone() }
    }

    /// When it was read, if that is no longer ago than this. The clocks of two nodes may differ.
    pub(crate) fn read_within(&self, age: Duration, now: Time) -> Option<Time> {
        let read_at = self.read_at?;
        (u128::from(read_at.abs_diff(now.0)) < age.as_millis()).then_some(Time(read_at))
    }
}

impl ToolAnnotations {
    /// The annotations, if this process may use its copy.
    pub(crate) fn cached(&self, principal: &Principal, now: Time) -> Option<Arc<IdempotentTools>> {
        let slots = self.slots();
        let known = slots.by_principal.get(principal)?.known.as_ref()?;
        (now < known.cached_until).then(|| Arc::clone(&known.tools))
    }

    pub(crate) fn look_up(&self, principal: &Principal, now: Time) -> Lookup {
        let mut slots = self.slots();
        let Some(slot) = slots.of(principal) else { return Lookup::Unavailable };
        match &slot.known {
            Some(known) if now < known.cached_until => return Lookup::Known(Arc::clone(&known.tools)),
            _ => {}
        }
        if let Some(reading) = slot.reading() {
            return Lookup::Join(reading);
        }
        if slot.failure.is_some_and(|failure| now < failure.retry_at) {
            return Lookup::Unavailable;
        }
        Lookup::Read(slot.start_reading())
    }

    /// If the annotations are to be read again soon, the caller has to, and to send the result.
    pub(crate) fn refresh(
        &self,
        principal: &Principal,
        now: Time,
    ) -> Option<watch::Sender<Option<ReadResult>>> {
        let mut slots = self.slots();
        let slot = slots.by_principal.get_mut(principal)?;
        let is_due = now >= slot.known.as_ref()?.read_at.plus(REFRESH_AFTER)
            && slot.failure.is_none_or(|failure| now >= failure.retry_at)
            && slot.reading().is_none();
        is_due.then(|| slot.start_reading())
    }

    /// A number that changes when what is being read is out of date.
    pub(crate) fn generation(&self, principal: &Principal) -> u64 {
        self.slots().of(principal).map_or(0, |slot| slot.generation)
    }

    /// Takes in what was read at `read_at`, unless it is out of date. Gives whether it is not.
    pub(crate) fn set(
        &self,
        principal: &Principal,
        tools: &Arc<IdempotentTools>,
        generation: u64,
        read_at: Time,
        cached_until: Time,
    ) -> bool {
        let mut slots = self.slots();
        let Some(slot) = slots.of(principal) else { return true };
        let is_current = slot.generation == generation;
        if is_current {
            slot.known = Some(Known { tools: Arc::clone(tools), read_at, cached_until });
            slot.failure = None;
        }
        is_current
    }

    /// A read failed after this long. A server that is slow to fail is left alone for longer.
    pub(crate) fn failed(&self, principal: &Principal, elapsed: Duration, now: Time) {
        let mut slots = self.slots();
        let Some(slot) = slots.of(principal) else { return };
        let first = Duration::from_secs(1).saturating_add(elapsed * 3);
        let delay = slot.failure.map_or(first, |failure| failure.delay.saturating_mul(2)).min(LIFETIME);
        slot.failure = Some(Failure { delay, retry_at: now.plus(delay) });
    }

    /// The server is not to be asked ahead of need: it does not declare the capability `tools`.
    pub(crate) fn has_none(&self, principal: &Principal, now: Time) {
        if let Some(slot) = self.slots().of(principal) {
            slot.failure = Some(Failure { delay: LIFETIME, retry_at: now.plus(LIFETIME) });
        }
    }

    /// Drops what is known. Gives whether the caller has to invalidate the record in the store, and then
    /// to call [`ToolAnnotations::invalidated`].
    pub(crate) fn invalidate(&self, principal: &Principal, has_record: bool) -> bool {
        let mut slots = self.slots();
        slots.generations += 1;
        let generation = slots.generations;
        // Without room this process keeps nothing, and the record is invalidated all the same.
        let Some(slot) = slots.of(principal) else { return has_record };
        slot.generation = generation;
        (slot.known, slot.failure) = (None, None);
        let is_first = has_record && slot.invalidating == Invalidating::No;
        slot.invalidating = match slot.invalidating {
            _ if !has_record => slot.invalidating,
            Invalidating::No => Invalidating::Yes,
            Invalidating::Yes | Invalidating::Again => Invalidating::Again,
        };
        is_first
    }

    /// The record in the store is invalidated. Gives whether it has to be once more, because the list has
    /// changed meanwhile.
    pub(crate) fn invalidated(&self, principal: &Principal) -> bool {
        let mut slots = self.slots();
        let Some(slot) = slots.by_principal.get_mut(principal) else { return false };
        let again = slot.invalidating == Invalidating::Again;
        slot.invalidating = if again { Invalidating::Yes } else { Invalidating::No };
        drop(slots);
        self.record_written.notify_waiters();
        again
    }

    /// Waits until the record in the store is as invalid as what this process knew.
    pub(crate) async fn record_is_written(&self, principal: &Principal) {
        loop {
            let written = self.record_written.notified();
            let slot_is_invalidating = {
                let slots = self.slots();
                let slot = slots.by_principal.get(principal);
                slot.is_some_and(|slot| slot.invalidating != Invalidating::No)
            };
            if !slot_is_invalidating {
                return;
            }
            written.await;
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// The slot of a principal. `None` if there is no room for it.
    fn of(&mut self, principal: &Principal) -> Option<&mut Slot> {
        if !self.by_principal.contains_key(principal) {
            if self.by_principal.len() >= MAX_PRINCIPALS {
                self.by_principal.retain(|_, slot| slot.is_in_use());
            }
            if self.by_principal.len() >= MAX_PRINCIPALS {
                return None;
            }
            self.generations += 1;
            let slot = Slot { generation: self.generations, ..Slot::default() };
            self.by_principal.insert(principal.clone(), slot);
        }
        self.by_principal.get_mut(principal)
    }
}

impl Slot {
    fn reading(&self) -> Option<watch::Receiver<Option<ReadResult>>> {
        self.reading.clone().filter(|reading| reading.has_changed().is_ok() && reading.borrow().is_none())
    }

    fn start_reading(&mut self) -> watch::Sender<Option<ReadResult>> {
        let (sender, reading) = watch::channel(None);
        self.reading = Some(reading);
        sender
    }

    fn is_in_use(&self) -> bool {
        self.reading().is_some() || self.invalidating != Invalidating::No
    }
}

/// Methods that are idempotent, whatever the server is.
pub(crate) fn is_idempotent_method(method: &str) -> bool {
    matches!(
        method,
        "ping"
            | "tools/list"
            | "prompts/list"
            | "prompts/get"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "completion/complete"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/get"
            | "tasks/list"
            | "tasks/result"
            | "server/discover"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    fn tools(page: &str, limit: usize) -> IdempotentTools {
        let mut tools = IdempotentTools::default();
        tools.add_page(page.as_bytes(), limit).unwrap();
        tools
    }

    #[test]
    fn only_annotated_tools_are_idempotent() {
        let page = r#"{"tools":[
            {"name":"read","annotations":{"readOnlyHint":true}},
            {"name":"set","annotations":{"readOnlyHint":false,"idempotentHint":true,"title":"x"}},
            {"name":"add","annotations":{"destructiveHint":false}},
            {"name":"none"},
            {"name":"one too many","annotations":{"readOnlyHint":true}}],"nextCursor":"c"}"#;
        let tools = tools(page, 2);
        let called =
            |name: &str| tools.are_called_by(Some(&format!(r#"{{"arguments":{{}},"name":"{name}"}}"#)));
        let called = ["read", "set", "add", "none", "one too many", "unknown"].map(called);
        assert_eq!(called, [true, true, false, false, false, false]);
        assert!(!tools.are_called_by(None) && !tools.are_called_by(Some("{}")));
        let mut tools = tools;
        assert_eq!(tools.add_page(page.as_bytes(), 2), Some(Some("c".to_owned())));
        assert_eq!(tools.add_page(br#"{"tools":[]}"#, 2), Some(None));
        assert_eq!(tools.add_page(b"{}", 2), None, "not a page");
    }

    #[test]
    fn names_are_bounded_in_bytes() {
        let tool = |name: &str| format!(r#"{{"name":"{name}","annotations":{{"readOnlyHint":true}}}}"#);
        let (most, one_more) = ("x".repeat(MAX_NAME_BYTES), "y");
        let tools = tools(&format!(r#"{{"tools":[{},{}]}}"#, tool(&most), tool(one_more)), 9);
        assert_eq!(tools.0.len(), 1);
    }

    #[test]
    fn a_record_is_used_for_its_lifetime_whichever_clock_is_ahead() {
        let stored = Stored::new(&IdempotentTools::default(), NOW);
        let last = Duration::from_millis(LIFETIME.as_millis() as u64 - 1);
        let early = Time(NOW.0 - LIFETIME.as_millis() as u64);
        let read =
            [NOW, NOW.plus(last), NOW.plus(LIFETIME), early].map(|now| stored.read_within(LIFETIME, now));
        assert_eq!(read, [Some(NOW), Some(NOW), None, None]);
        assert_eq!(Stored::default().read_within(LIFETIME, NOW), None);
    }

    fn known(annotations: &ToolAnnotations, principal: &Principal, generation: u64) -> bool {
        let tools = Arc::new(IdempotentTools::default());
        annotations.set(principal, &tools, generation, NOW, NOW.plus(CACHE_LIFETIME))
    }

    #[test]
    fn what_was_read_before_a_change_is_not_used() {
        let (annotations, principal) = (ToolAnnotations::default(), Principal::new("a"));
        let generation = annotations.generation(&principal);
        assert!(annotations.invalidate(&principal, true));
        assert!(!known(&annotations, &principal, generation));
        assert!(!annotations.invalidate(&principal, true), "one task writes at a time");
        assert!(annotations.invalidated(&principal) && !annotations.invalidated(&principal));
        assert!(known(&annotations, &principal, annotations.generation(&principal)));
        assert!(annotations.cached(&principal, NOW).is_some());
        assert!(annotations.cached(&principal, NOW.plus(CACHE_LIFETIME)).is_none());
    }

    #[test]
    fn one_caller_reads_and_waits_longer_after_each_failure() {
        let (annotations, principal) = (ToolAnnotations::default(), Principal::new("a"));
        let Lookup::Read(sender) = annotations.look_up(&principal, NOW) else { panic!("the first") };
        assert!(matches!(annotations.look_up(&principal, NOW), Lookup::Join(_)));
        drop(sender);
        let Lookup::Read(_) = annotations.look_up(&principal, NOW) else { panic!("the task is gone") };
        let second = Duration::from_secs(1);
        annotations.failed(&principal, Duration::ZERO, NOW);
        assert!(matches!(annotations.look_up(&principal, NOW), Lookup::Unavailable));
        let later = NOW.plus(second);
        let Lookup::Read(_) = annotations.look_up(&principal, later) else { panic!("a second later") };
        annotations.failed(&principal, Duration::ZERO, later);
        assert!(matches!(annotations.look_up(&principal, later.plus(second)), Lookup::Unavailable));
        let Lookup::Read(_) = annotations.look_up(&principal, later.plus(second * 2)) else {
            panic!("two later")
        };
    }

    #[test]
    fn principals_are_bounded() {
        let annotations = ToolAnnotations::default();
        let name = |no: usize| Principal::new(no.to_string());
        let reading = annotations.look_up(&name(0), NOW);
        for no in 1..MAX_PRINCIPALS {
            assert!(known(&annotations, &name(no), annotations.generation(&name(no))));
        }
        assert!(annotations.cached(&name(1), NOW).is_some());
        annotations.generation(&name(MAX_PRINCIPALS));
        assert!(annotations.cached(&name(1), NOW).is_none(), "all are dropped");
        assert!(
            matches!(annotations.look_up(&name(0), NOW), Lookup::Join(_)),
            "but for the one that is read"
        );
        drop(reading);
    }
}
