//! The tables, row by row.

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn receipt() -> ChargeReceipt {
    ChargeReceipt { provider_ref: Some("ch_1".to_owned()) }
}

/// A conclusion in a word: the class of a refusal, with a `!` if it is settled.
fn word(conclusion: &Conclusion) -> String {
    match conclusion {
        Conclusion::Charged(_) => "charged".to_owned(),
        Conclusion::Wait { .. } => "wait".to_owned(),
        Conclusion::Failed(error) => error_word(error),
    }
}

fn error_word(error: &HandlerError) -> String {
    match error {
        HandlerError::Transient { effect: Effect::Unknown, .. } => "unknown".to_owned(),
        HandlerError::Transient { effect: Effect::None, .. } => "transient".to_owned(),
        HandlerError::Transient { effect, .. } => panic!("nobody asked, so it is not {effect:?}"),
        HandlerError::Permanent(Refusal { class, settled, .. }) => {
            format!("{class}{}", if *settled { "!" } else { "" })
        }
        HandlerError::Halt { .. } => "halt".to_owned(),
    }
}

fn questions() -> [Question; 4] {
    [
        Question::TakenOn { reason: "202".to_owned(), retry_after: Some(HOUR) },
        Question::Conflict { reason: "409".to_owned() },
        Question::Refused(Refusal::new(DECLINED, "402")),
        Question::Refused(Refusal::new(KEY_REUSED, "422")),
    ]
}

fn answers() -> [LookUp; 5] {
    [
        LookUp::Charged(receipt()),
        LookUp::Pending,
        LookUp::Failed { reason: "no money".to_owned() },
        LookUp::NotFound,
        LookUp::NotOffered,
    ]
}

#[test]
fn every_answer_to_every_question_has_its_conclusion() {
    let table = [
        // charged, pending, failed, not found, not offered
        ["charged", "unknown", "declined!", "unknown", "unknown"],
        ["charged", "unknown", "declined!", "unknown", "wait"],
        ["charged", "unknown", "declined!", "declined!", "declined"],
        ["charged", "unknown", "key_reused!", "key_reused!", "key_reused"],
    ];
    for (question, row) in questions().into_iter().zip(table) {
        for (answer, expected) in answers().into_iter().zip(row) {
            let conclusion = conclude(question.clone(), answer.clone());
            assert_eq!(word(&conclusion), expected, "{question:?}, {answer:?}");
            if let Conclusion::Charged(found) = conclusion {
                assert_eq!(found, receipt(), "the reference is kept");
            }
        }
    }
}

#[test]
fn the_answer_before_a_charge_allows_it_or_ends_the_try() {
    for (key_may_be_gone, row) in [
        (false, ["charged", "unknown", "declined!", "charge", "charge"]),
        (true, ["charged", "unknown", "declined!", "charge", "in_doubt"]),
    ] {
        for (answer, expected) in answers().into_iter().zip(row) {
            let opening = match before_charge(answer.clone(), key_may_be_gone) {
                Opening::Charge => "charge".to_owned(),
                Opening::Ended(conclusion) => word(&conclusion),
            };
            assert_eq!(opening, expected, "{answer:?}, {key_may_be_gone}");
        }
    }
}

#[test]
fn after_deaths_nothing_but_a_clear_answer_settles_an_order() {
    for (answer, expected) in answers().into_iter().zip(["charged", "in_doubt", "declined!", "in_doubt", "in_doubt"]) {
        assert_eq!(word(&after_deaths(answer.clone())), expected, "{answer:?}");
    }
}

#[test]
fn a_look_up_that_fails_leaves_what_was_known() {
    let transient =
        |retry_after| GatewayError::Transient { reason: "503".to_owned(), retry_after, effect: Effect::None };
    let reused = GatewayError::KeyReused { reason: "another order".to_owned() };
    let declined = GatewayError::Declined { reason: "400".to_owned() };
    let misconfigured = GatewayError::Misconfigured { reason: "401".to_owned() };
    let after = [None].into_iter().chain(questions().into_iter().map(Some));
    let expected = ["transient", "unknown", "unknown", "transient", "transient"];
    for (question, expected) in after.zip(expected) {
        for error in [transient(None), declined.clone()] {
            assert_eq!(error_word(&look_up_failed(error, question.clone())), expected, "{question:?}");
        }
        assert_eq!(error_word(&look_up_failed(reused.clone(), question.clone())), "key_reused", "{question:?}");
        assert_eq!(error_word(&look_up_failed(misconfigured.clone(), question)), "halt");
    }
    let [taken_on, ..] = questions();
    for (answered, longest) in [(None, HOUR), (Some(HOUR / 2), HOUR), (Some(2 * HOUR), 2 * HOUR)] {
        let failed = look_up_failed(transient(answered), Some(taken_on.clone()));
        let HandlerError::Transient { retry_after, reason, .. } = failed else { panic!("503 is transient") };
        assert_eq!((retry_after, reason.as_str()), (Some(longest), "202; 503"));
    }
}

#[test]
fn a_charge_that_is_not_confirmed_is_asked_about_or_ends() {
    let text = || "no".to_owned();
    let next = |error, in_doubt| match after_charge(error, in_doubt) {
        Next::Ask(Question::Refused(refusal)) => format!("ask about {}", refusal.class),
        Next::Ask(Question::TakenOn { retry_after, .. }) => format!("ask about 202, {retry_after:?}"),
        Next::Ask(Question::Conflict { .. }) => "ask about 409".to_owned(),
        Next::Fail(error) => error_word(&error),
    };
    let transient = |effect| GatewayError::Transient { reason: text(), retry_after: None, effect };
    for (error, calm, in_doubt) in [
        (transient(Effect::None), "transient", "transient"),
        (transient(Effect::Unknown), "unknown", "unknown"),
        (GatewayError::Pending { reason: text(), retry_after: None }, "ask about 202, None", "ask about 202, None"),
        (GatewayError::Conflict { reason: text() }, "ask about 409", "ask about 409"),
        (GatewayError::KeyReused { reason: text() }, "key_reused", "ask about key_reused"),
        (GatewayError::Declined { reason: text() }, "declined", "ask about declined"),
        (GatewayError::Misconfigured { reason: text() }, "halt", "halt"),
    ] {
        assert_eq!(next(error.clone(), false), calm);
        assert_eq!(next(error, true), in_doubt);
    }
}

#[test]
fn the_provider_is_asked_first_about_doubts_and_forgotten_keys_only() {
    assert!(!asks_first(false, false));
    assert!(asks_first(true, false) && asks_first(false, true) && asks_first(true, true));
}

#[test]
fn a_key_is_certain_for_its_lifetime_less_skew_and_call() {
    let memory = KeyMemory::new(24 * HOUR, Duration::from_secs(300), Duration::from_secs(10));
    let event = EventId::at(UnixMillis(1_700_000_000_000), [7; 10]);
    let at = |age: Duration| memory.may_be_gone(event, event.made_at().plus(age));
    let certain = 24 * HOUR - Duration::from_secs(310);
    assert!(!at(Duration::ZERO));
    assert!(!at(certain - Duration::from_millis(1)));
    assert!(at(certain));
    assert!(at(30 * 24 * HOUR));
    assert!(!memory.may_be_gone(event, event.made_at().minus(HOUR)), "made ahead of our clock");

    let short = KeyMemory::new(Duration::from_secs(60), Duration::from_secs(300), Duration::from_secs(10));
    assert!(short.may_be_gone(event, event.made_at()), "nothing is ever certain");
}
