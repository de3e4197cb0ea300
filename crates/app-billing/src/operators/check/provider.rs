//! The check of the payment provider: it is asked, and never charges.

use core_delivery::event::EventId;

use super::super::provider::{NoAnswer, Questions};
use super::Item;

/// Asks the provider for a charge that was never made, or, without a look-up, whether it answers at all.
pub async fn check(questions: Result<Questions, NoAnswer>, looks_up: bool) -> Item {
    let name = "payment provider";
    let answer = match (questions, looks_up) {
        (Ok(questions), true) => {
            let answer = questions.looks_up(EventId::generate()).await;
            answer.map(|()| "looks charges up".to_owned())
        }
        (Ok(questions), false) => questions.answers().await,
        (Err(error), _) => Err(error),
    };
    match answer {
        Ok(what) => Item::fine(name, what),
        Err(NoAnswer::Unreachable(what)) => {
            Item::unreachable(name, what, "correct PAYMENT_URL, or ask the provider; certificates are the system's")
        }
        Err(NoAnswer::Refused(what)) => Item::finding(name, what, "set PAYMENT_API_KEY to a key that may charge"),
        Err(NoAnswer::NotOffered(what)) => Item::finding(
            name,
            format!("PAYMENT_LOOKUP is on, and it {what}"),
            "set PAYMENT_LOOKUP=off: events whose outcome is unknown are then dead letters of class in_doubt",
        ),
        Err(NoAnswer::Settings(what)) => Item::finding(name, what, "set PAYMENT_URL to https://host/base"),
    }
}
