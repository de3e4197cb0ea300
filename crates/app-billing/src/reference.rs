//! The page docs/configuration.md, made of the options that the program itself reads. No value that is set anywhere may
//! get into it: it is the same on every machine.

use std::fmt::Write;

use adapters_kafka::KafkaSettings;
use clap::builder::StyledStr;
use clap::{Arg, Args, Command};

#[cfg(feature = "embedded")]
use crate::cli::SandboxProvider;
use crate::config::Config;
#[cfg(feature = "embedded")]
use crate::embedded::EmbeddedOptions;

/// What no option says of itself.
const INTRODUCTION: &str = include_str!("reference/introduction.md");

/// The page, in Markdown: the introduction, the options by heading, and the properties of Kafka that are refused. A build
/// without the embedded run leaves its options out.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    write_options(&mut page, &of::<Config>());
    #[cfg(feature = "embedded")]
    {
        write_options(&mut page, &of::<EmbeddedOptions>());
        let heading = "The sandbox provider, `app-billing sandbox-provider`";
        write_options(&mut page, &of::<SandboxProvider>().next_help_heading(heading));
    }
    write_refused(&mut page, KafkaSettings::refused_properties());
    page
}

fn of<Options: Args>() -> Command {
    Options::augment_args(Command::new("app-billing"))
}

/// A table for each heading, in the order in which the options are declared.
fn write_options(page: &mut String, command: &Command) {
    let mut heading = None;
    for option in command.get_arguments() {
        let next = option.get_help_heading().or(command.get_next_help_heading()).unwrap_or("Options");
        if heading != Some(next) {
            let variable =
                if command.get_arguments().any(|option| option.get_env().is_some()) { "variable, " } else { "" };
            push(page, format_args!("\n## {next}\n\n| {variable}flag | default | meaning |\n|---|---|---|\n"));
            heading = Some(next);
        }
        push(page, format_args!("| {} | {} | {} |\n", names(option), default(option), cell(&meaning(option))));
    }
}

fn names(option: &Arg) -> String {
    let value = if option.get_action().takes_values() { option.get_value_names().unwrap_or_default() } else { &[] };
    let value: String = value.iter().map(|name| format!(" <{name}>")).collect();
    let flag = format!("`--{}{value}`", option.get_long().expect("every option has a long name"));
    match option.get_env() {
        Some(variable) => format!("`{}`<br>{flag}", variable.to_string_lossy()),
        None => flag,
    }
}

fn default(option: &Arg) -> String {
    let values: Vec<_> = option.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if values.is_empty() || !option.get_action().takes_values() {
        String::new()
    } else {
        format!("`{}`", values.join(","))
    }
}

/// The doc comment, and what each possible value means.
fn meaning(option: &Arg) -> String {
    let sentences = |text: &StyledStr| {
        let text = text.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if text.ends_with(['.', '?', ':']) { text } else { text + "." }
    };
    let mut meaning = option.get_long_help().or(option.get_help()).map(sentences).unwrap_or_default();
    for value in option.get_possible_values() {
        if let Some(help) = value.get_help() {
            push(&mut meaning, format_args!(" `{}`: {}", value.get_name(), sentences(help)));
        }
    }
    meaning
}

fn write_refused(page: &mut String, properties: &[(&str, &str)]) {
    page.push_str("\n## Kafka properties that are refused\n\nA guarantee rests on each of them.\n\n");
    page.push_str("| property | why |\n|---|---|\n");
    for (property, reason) in properties {
        push(page, format_args!("| `{property}` | {} |\n", cell(reason)));
    }
}

/// A bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string takes everything");
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use clap::FromArgMatches;
    use clap::builder::Resettable;

    use super::*;

    const COMMAND: &str = "cargo run -p app-billing -- config --reference > docs/configuration.md";

    #[test]
    fn the_page_in_docs_says_what_the_options_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        let page = page();
        let difference = page.lines().zip(written.lines().chain(std::iter::repeat(""))).find(|(made, is)| made != is);
        assert!(written == page, "docs/configuration.md is out of date. Write it anew: {COMMAND}\n{difference:#?}");
        assert!(written.contains(COMMAND), "the page says how it is made");
    }

    #[test]
    fn every_option_is_there_with_its_variable_flag_default_and_meaning() {
        let page = page();
        for option in of::<Config>().get_arguments() {
            let names = names(option);
            let row = page.lines().find(|line| line.starts_with(&format!("| {names} |"))).expect(&names);
            let cells: Vec<&str> = row.split(" | ").collect();
            assert!(names.starts_with('`') && names.contains("`<br>`--"), "no variable: {row}");
            assert!(cells.len() == 3 && cells[2].len() > 10, "no meaning: {row}");
        }
        assert!(
            page.contains(
                "| `KAFKA_TOPIC`<br>`--kafka-topic <TOPIC>` | `orders` | The topic of OrderConfirmed events. |"
            )
        );
        assert!(page.contains("| `--until-idle` |  | "), "a switch has no default");
        assert!(page.contains("| `enable.auto.commit` | an offset is committed only after a verdict |"));
    }

    #[test]
    fn the_introduction_names_the_defaults_of_the_embedded_run() {
        let unset = of::<Config>().mut_args(|option| option.env(Resettable::Reset));
        let matches = unset.get_matches_from(["app-billing"]);
        let config = Config::from_arg_matches(&matches).expect("nothing is required").with_embedded_defaults(|_| true);
        let tiers: Vec<_> =
            config.retry_tiers.iter().map(|tier| humantime::format_duration(*tier).to_string()).collect();
        for named in [format!("`RETRY_TIERS={}`", tiers.join(",")), format!("`LOG={}`", config.log)] {
            assert!(INTRODUCTION.contains(&named), "{named}");
        }
    }

    #[test]
    fn a_bar_does_not_end_a_cell() {
        assert_eq!(cell("a|b"), "a\\|b");
    }
}
