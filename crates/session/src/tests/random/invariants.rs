//! The invariants that hold after every command: the session agrees with the model.

use super::model::{Model, ModelCall};
use crate::{Class, ForwardedCall, Holdings, NodeId, Read, Request, Session, StreamKind, Time};

impl Model {
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
        let forwarded = calls().filter_map(|(no, call)| {
            let Request { text, reassignable } =
                call.request.as_ref().filter(|_| call.assigned_by != node)?.clone();
            let ModelCall { stream, response_only, .. } = *call;
            Some(ForwardedCall {
                call: no,
                id: call.id.clone(),
                stream,
                response_only,
                request: text,
                reassignable,
            })
        });
        let server_requests = self
            .server_requests
            .iter()
            .filter(|(_, server_request)| !server_request.over && server_request.owner == node);
        let answers = self.stored_answers().filter(|(no, _)| self.server_requests[no].owner == node);
        let open = self.held().filter(|(_, stream)| stream.ended.is_none());
        let read = open.filter_map(|(no, stream)| Some((no, stream.reader?)));
        let held = Holdings::Held {
            calls: calls().map(|(no, call)| (no, call.id.clone())).collect(),
            forwarded: forwarded.collect(),
            server_requests: server_requests.map(|(no, _)| *no).collect(),
            answers: answers.map(|(no, answer)| (no, answer.message.clone())).collect(),
            connections: read
                .filter(|(_, reader)| reader.1 == node)
                .map(|(no, reader)| (no, reader.0))
                .collect(),
            detached_at: session.meta().detached_at,
        };
        assert_eq!(session.held_by(node), held);
    }

    fn check_tables(&self, session: &Session) {
        let calls: Vec<_> = session.calls().iter().map(|(no, call)| (*no, &call.id, call.stream)).collect();
        let known: Vec<_> = self.in_flight().map(|(no, call)| (no, &call.id, call.stream)).collect();
        assert_eq!(calls, known);
        for server_request in
            session.server_requests().values().filter(|server_request| server_request.answer.is_none())
        {
            assert!(
                self.streams[&server_request.stream].kept.contains(&server_request.seq),
                "an open server request was dropped"
            );
        }
        let server_requests: Vec<_> = session
            .server_requests()
            .iter()
            .map(|(no, server_request)| (*no, server_request.call, server_request.owner))
            .collect();
        let open = self.server_requests.iter().filter(|(_, server_request)| !server_request.over);
        assert_eq!(
            server_requests,
            open.map(|(no, server_request)| (*no, server_request.call, server_request.owner))
                .collect::<Vec<_>>()
        );
        let state: Vec<_> = session.state().iter().map(|(key, value)| (key, value.version)).collect();
        assert_eq!(state, self.state.iter().map(|(key, value)| (key, value.0)).collect::<Vec<_>>());
        assert_eq!(session.meta().detached_at, self.detached);
        assert_eq!(session.meta().closed.map(|(_, at)| at), self.closed);
        assert_eq!(session.is_open(), self.closed.is_none());
    }

    fn check_streams(&self, session: &Session) {
        assert_eq!(session.streams().len(), self.held().count());
        let mut bytes = 0;
        for (no, model_stream) in self.held() {
            let stream = &session.streams()[&no];
            assert_eq!(stream.last_seq(), model_stream.last);
            assert_eq!(stream.attached, model_stream.reader);
            assert_eq!(stream.delivered, model_stream.delivered);
            assert_eq!(stream.finished_at, model_stream.ended);
            let open = self.in_flight().filter(|(_, call)| call.stream == no).count();
            let kind = if model_stream.standalone {
                StreamKind::Standalone
            } else {
                StreamKind::Post { open: u32::try_from(open).unwrap() }
            };
            assert_eq!(stream.kind, kind);
            assert!(stream.events.iter().map(|entry| &entry.seq).eq(&model_stream.kept));
            for entry in &stream.events {
                let (class, payload) = &model_stream.events[&entry.seq];
                assert_eq!((entry.class, entry.payload.as_ref()), (*class, Some(payload)));
                assert_eq!(u64::from(entry.size), model_stream.size(entry.seq));
            }
            let held = model_stream.bytes();
            assert_eq!(stream.bytes, held);
            bytes += held;
        }
        assert_eq!(session.bytes(), bytes);
    }

    fn check_limits(&self, session: &Session) {
        let limits = &self.rules.limits;
        assert!(session.calls().len() <= limits.calls);
        assert!(session.server_requests().len() <= limits.server_requests);
        let kept: usize = self.stored_answers().map(|(_, answer)| answer.message.len()).sum();
        assert_eq!(session.kept_answer_bytes(), kept as u64);
        assert!(session.kept_answer_bytes() <= limits.kept_answer_bytes);
        assert_eq!(session.kept_request_bytes(), self.stored_request_bytes());
        assert!(session.kept_request_bytes() <= limits.kept_request_bytes);
        let standalone = session.streams().values().filter(|s| s.kind == StreamKind::Standalone);
        assert!(standalone.count() <= limits.standalone_streams);
        let unread = self.held().filter(|(_, stream)| !stream.is_fully_delivered()).count();
        assert!(unread <= limits.streams + limits.standalone_streams);
        assert!(session.state().len() <= limits.state_entries);
        let mut session_bytes = 0;
        for stream in session.streams().values() {
            let refusable = stream.events.iter().filter(|entry| entry.class < Class::Withdrawal);
            let bytes: u64 = refusable.map(|entry| u64::from(entry.size)).sum();
            assert!(bytes <= limits.stream_bytes);
            session_bytes += bytes;
        }
        assert!(session_bytes <= limits.session_bytes);
    }

    fn check_deadline(&self, session: &Session, now: Time) {
        let busy = self.in_flight().next().is_some() || self.has_reader();
        let deadline = session.deadline(&self.rules);
        assert_eq!(deadline.is_none(), busy || self.closed.is_some());
        if let Some((at, _)) = deadline {
            let span = if self.detached.is_some() { self.rules.timing.grace } else { self.rules.timing.idle };
            assert!(at >= self.active.plus(span) && at <= now.plus(span).plus(self.rules.timing.touch));
            assert!(session.next_check(&self.rules).is_some_and(|next| next <= at));
        }
    }

    /// Reads from one position of each stream. The position moves as the stream grows.
    fn check_reads(&self, session: &Session) {
        for (no, model_stream) in &self.streams {
            let after = model_stream.last / 2;
            for budget in [0, 150, u64::MAX] {
                let Read::Slice(slice) = session.read(*no, after, budget) else {
                    assert!(model_stream.gone && session.read(*no, after, budget) == Read::Gone);
                    continue;
                };
                let got: Vec<u64> = slice.events.iter().map(|entry| entry.seq).collect();
                let want = model_stream.kept.range(after + 1..).copied().take(got.len());
                assert_eq!(got, want.collect::<Vec<_>>());
                assert_eq!(got.len() as u64 + slice.missing, slice.through - after);
                let is_last = slice.through == model_stream.last;
                assert!(is_last || slice.through == *got.last().unwrap());
                assert_eq!(slice.ended, is_last && model_stream.ended.is_some());
            }
            let beyond = session.read(*no, model_stream.last + 1, 0);
            assert_eq!(beyond, if model_stream.gone { Read::Gone } else { Read::UnknownEvent });
        }
    }
}
