//! The kernel as a whole, on the memory store and a scripted stream, under a clock that a test drives. Nothing here
//! touches a real component.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test stops at the first surprise")]

mod batch_order;
mod batch_rules;
mod compile_fail;
mod consumer;
mod contract;
mod deadly;
mod positions;
mod stragglers;
mod support;
