//! What operators do by hand: look at dead letters and replay them, look at positions and set them, import claims,
//! audit, check. No delivery rule is made here: whatever is sent round again meets its claim like any delivery. Only
//! `compose` knows more than one adapter.

pub mod commands;
pub mod compose;

pub mod dlq;
pub mod letters;
pub mod lock;
pub mod replay;

pub mod positions;

pub mod audit;
pub mod check;
pub mod provider;

pub mod table;
