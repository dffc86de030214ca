//! Answers that the store does not accept. They stay in memory until it does.

use bytes::Bytes;
use steadfast_session::CallNo;

use crate::sessions::LiveSession;

impl LiveSession {
    /// Keeps the answer of a call for a later attempt. The first answer stays: the client may have
    /// received it. When every call of a stream has such an answer, the connection of the stream
    /// gets them without event ids.
    pub(crate) fn keep_unstored_answer(&self, call: CallNo, answer: Bytes) {
        let mut work = self.work();
        let Some(stream) = work.calls.get(&call).map(|running| running.stream) else { return };
        work.unstored_answers.entry(call).or_insert(answer);
        let mut of_stream = work.calls.iter().filter(|(_, running)| running.stream == stream);
        let answers: Option<Vec<Bytes>> = of_stream.try_fold(Vec::new(), |mut all, (no, _)| {
            all.push(work.unstored_answers.get(no)?.clone());
            Some(all)
        });
        if let (Some(answers), Some((_, tail))) = (answers, work.tails.get(&stream)) {
            tail.deliver_unlogged(answers);
        }
    }

    pub(crate) fn unstored_answer(&self, call: CallNo) -> Option<Bytes> {
        self.work().unstored_answers.get(&call).cloned()
    }

    pub(crate) fn unstored_answers(&self) -> Vec<(CallNo, Bytes)> {
        self.work().unstored_answers.iter().map(|(call, answer)| (*call, answer.clone())).collect()
    }
}
