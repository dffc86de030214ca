//! A bounded queue of messages for one reader. It makes room by dropping droppable messages.

use std::collections::VecDeque;

use bytes::Bytes;
use steadfast_session::Class;

/// Messages in the order of their arrival. The caller sets the bounds.
#[derive(Debug, Default)]
pub struct MessageQueue {
    messages: VecDeque<(Class, Bytes)>,
    bytes: usize,
}

impl MessageQueue {
    /// Adds a message, also if the queue is full.
    pub fn push(&mut self, class: Class, payload: Bytes) {
        self.bytes += payload.len();
        self.messages.push_back((class, payload));
    }

    /// Adds a message before all others.
    pub fn push_first(&mut self, class: Class, payload: Bytes) {
        self.bytes += payload.len();
        self.messages.push_front((class, payload));
    }

    pub fn pop(&mut self) -> Option<(Class, Bytes)> {
        let (class, payload) = self.messages.pop_front()?;
        self.bytes -= payload.len();
        Some((class, payload))
    }

    /// Drops droppable messages, the oldest first, until a message of this size fits. Returns how
    /// many were dropped.
    pub fn make_room(&mut self, size: usize, max_messages: usize, max_bytes: usize) -> usize {
        let mut dropped = 0;
        while !self.has_room(size, max_messages, max_bytes)
            && let Some(oldest) = self.messages.iter().position(|(class, _)| *class == Class::Droppable)
        {
            let message = self.messages.remove(oldest);
            self.bytes -= message.map_or(0, |(_, payload)| payload.len());
            dropped += 1;
        }
        dropped
    }

    pub fn has_room(&self, size: usize, max_messages: usize, max_bytes: usize) -> bool {
        self.messages.len() < max_messages && self.bytes + size <= max_bytes
    }

    /// Returns the number and the size of the messages that are not droppable.
    pub fn not_droppable(&self) -> (usize, usize) {
        let kept = self.messages.iter().filter(|(class, _)| *class != Class::Droppable);
        kept.fold((0, 0), |(count, bytes), (_, payload)| (count + 1, bytes + payload.len()))
    }

    pub fn contains(&self, payload: &Bytes) -> bool {
        self.messages.iter().any(|(_, other)| other == payload)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
