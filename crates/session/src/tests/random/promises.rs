//! What must be true of a session at any time, given its history.

use super::history::{CallStory, History};
use crate::{Class, Errand, Holdings, NodeId, Read, Request, Session, StreamKind, Time};

impl History {
    pub(super) fn check(&self, session: &Session, now: Time) {
        self.check_tables(session);
        self.check_streams(session);
        self.check_limits(session);
        self.check_deadline(session, now);
        self.check_reads(session);
        (0..3).map(NodeId).for_each(|node| self.check_held(session, node));
    }

    fn check_held(&self, session: &Session, node: NodeId) {
        if self.closed.is_some() {
            return assert_eq!(session.held_by(node), Holdings::NoSession);
        }
        let calls = || self.in_flight().filter(|(_, call)| call.owner == node);
        let errands = calls().filter_map(|(no, call)| {
            let Request { text, again } = call.request.as_ref().filter(|_| call.from != node)?.clone();
            let CallStory { stream, answer_only, .. } = *call;
            Some(Errand { call: no, id: call.id.clone(), stream, answer_only, request: text, again })
        });
        let asks = self.asks.iter().filter(|(_, ask)| !ask.over && ask.owner == node);
        let answers = self.kept().filter(|(no, _)| self.asks[no].owner == node);
        let open = self.held().filter(|(_, stream)| stream.ended.is_none());
        let read = open.filter_map(|(no, stream)| Some((no, stream.reader?)));
        let held = Holdings::Held {
            calls: calls().map(|(no, call)| (no, call.id.clone())).collect(),
            errands: errands.collect(),
            asks: asks.map(|(no, _)| *no).collect(),
            answers: answers.map(|(no, answer)| (no, answer.message.clone())).collect(),
            connections: read
                .filter(|(_, reader)| reader.1 == node)
                .map(|(no, reader)| (no, reader.0))
                .collect(),
        };
        assert_eq!(session.held_by(node), held);
    }

    fn check_tables(&self, session: &Session) {
        let calls: Vec<_> = session.calls().iter().map(|(no, call)| (*no, &call.id, call.stream)).collect();
        let known: Vec<_> = self.in_flight().map(|(no, call)| (no, &call.id, call.stream)).collect();
        assert_eq!(calls, known);
        for ask in session.asks().values().filter(|ask| ask.answer.is_none()) {
            assert!(self.streams[&ask.stream].kept.contains(&ask.seq), "an open ask was dropped");
        }
        let asks: Vec<_> = session.asks().iter().map(|(no, ask)| (*no, ask.call, ask.owner)).collect();
        let open = self.asks.iter().filter(|(_, ask)| !ask.over);
        assert_eq!(asks, open.map(|(no, ask)| (*no, ask.call, ask.owner)).collect::<Vec<_>>());
        let state: Vec<_> = session.state().iter().map(|(key, value)| (key, value.version)).collect();
        assert_eq!(state, self.state.iter().map(|(key, value)| (key, value.0)).collect::<Vec<_>>());
        assert_eq!(session.meta().detached_at, self.detached);
        assert_eq!(session.meta().closed.map(|(_, at)| at), self.closed);
        assert_eq!(session.is_open(), self.closed.is_none());
    }

    fn check_streams(&self, session: &Session) {
        assert_eq!(session.streams().len(), self.held().count());
        let mut bytes = 0;
        for (no, story) in self.held() {
            let stream = &session.streams()[&no];
            assert_eq!(stream.last_seq(), story.last);
            assert_eq!(stream.attached, story.reader);
            assert_eq!(stream.delivered, story.delivered);
            assert_eq!(stream.finished_at, story.ended);
            let open = self.in_flight().filter(|(_, call)| call.stream == no).count();
            let kind = if story.standalone {
                StreamKind::Standalone
            } else {
                StreamKind::Post { open: u32::try_from(open).unwrap() }
            };
            assert_eq!(stream.kind, kind);
            assert!(stream.entries.iter().map(|entry| &entry.seq).eq(&story.kept));
            for entry in &stream.entries {
                let (class, payload) = &story.events[&entry.seq];
                assert_eq!((entry.class, entry.payload.as_ref()), (*class, Some(payload)));
                assert_eq!(u64::from(entry.size), story.size(entry.seq));
            }
            let held = story.bytes();
            assert_eq!(stream.bytes, held);
            bytes += held;
        }
        assert_eq!(session.bytes(), bytes);
    }

    fn check_limits(&self, session: &Session) {
        let limits = &self.rules.limits;
        assert!(session.calls().len() <= limits.calls);
        assert!(session.asks().len() <= limits.asks);
        let kept: usize = self.kept().map(|(_, answer)| answer.message.len()).sum();
        assert_eq!(session.kept_answer_bytes(), kept as u64);
        assert!(session.kept_answer_bytes() <= limits.kept_answer_bytes);
        assert_eq!(session.kept_request_bytes(), self.kept_requests());
        assert!(session.kept_request_bytes() <= limits.kept_request_bytes);
        let standalone = session.streams().values().filter(|s| s.kind == StreamKind::Standalone);
        assert!(standalone.count() <= limits.standalone_streams);
        let unread = self.held().filter(|(_, stream)| !stream.is_spent()).count();
        assert!(unread <= limits.streams + limits.standalone_streams);
        assert!(session.state().len() <= limits.state_entries);
        let mut whole = 0;
        for stream in session.streams().values() {
            let refusable = stream.entries.iter().filter(|entry| entry.class < Class::Withdrawal);
            let bytes: u64 = refusable.map(|entry| u64::from(entry.size)).sum();
            assert!(bytes <= limits.stream_bytes);
            whole += bytes;
        }
        assert!(whole <= limits.session_bytes);
    }

    fn check_deadline(&self, session: &Session, now: Time) {
        let busy = self.in_flight().next().is_some() || self.somebody_reads();
        let deadline = session.deadline(&self.rules);
        assert_eq!(deadline.is_none(), busy || self.closed.is_some());
        if let Some((at, _)) = deadline {
            let span = if self.detached.is_some() { self.rules.timing.grace } else { self.rules.timing.idle };
            assert!(at >= self.active.plus(span) && at <= now.plus(span).plus(self.rules.timing.touch));
            assert!(session.next_check(&self.rules).is_some_and(|next| next <= at));
        }
    }

    /// One position of each stream per step; the positions wander with the log.
    fn check_reads(&self, session: &Session) {
        for (no, story) in &self.streams {
            let after = story.last / 2;
            for budget in [0, 150, u64::MAX] {
                let Read::Slice(slice) = session.read(*no, after, budget) else {
                    assert!(story.gone && session.read(*no, after, budget) == Read::Gone);
                    continue;
                };
                let got: Vec<u64> = slice.entries.iter().map(|entry| entry.seq).collect();
                let want = story.kept.range(after + 1..).copied().take(got.len());
                assert_eq!(got, want.collect::<Vec<_>>());
                assert_eq!(got.len() as u64 + slice.missing, slice.through - after);
                let whole = slice.through == story.last;
                assert!(whole || slice.through == *got.last().unwrap());
                assert_eq!(slice.ended, whole && story.ended.is_some());
            }
            let beyond = session.read(*no, story.last + 1, 0);
            assert_eq!(beyond, if story.gone { Read::Gone } else { Read::UnknownEvent });
        }
    }
}
