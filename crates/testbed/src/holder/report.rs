//! The lines that a program which holds components prints for whoever started it; both sides use this one file.

use anyhow::{Context, Result};

/// What the run shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The broker.
    Kafka,
    /// The database.
    Postgres,
    /// Where topics of the embedded broker are created; there is one only with that broker.
    Topics,
}

impl Component {
    const ALL: [Self; 3] = [Self::Kafka, Self::Postgres, Self::Topics];

    /// As people write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka",
            Self::Postgres => "PostgreSQL",
            Self::Topics => "topics",
        }
    }

    /// The variable that the tests find it by.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Kafka => crate::backend::BROKERS_VARIABLE,
            Self::Postgres => crate::backend::DATABASE_VARIABLE,
            Self::Topics => crate::embedded::TOPICS_VARIABLE,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|component| component.name() == name)
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Something for people to read while they wait.
    Note(String),
    /// None of them can be started here; nothing follows.
    Unavailable(String),
    /// A component could not start.
    Failed {
        /// Which one.
        component: Component,
        /// Why.
        error: String,
    },
    /// A component serves.
    Ready {
        /// Which one.
        component: Component,
        /// The value of its variable.
        value: String,
        /// What it is, for people.
        about: String,
    },
}

impl Report {
    /// A word and its fields, with tabs between them and none inside.
    #[must_use]
    pub fn to_line(&self) -> String {
        let fields: Vec<&str> = match self {
            Self::Note(text) => vec!["note", text],
            Self::Unavailable(reason) => vec!["unavailable", reason],
            Self::Failed { component, error } => vec!["failed", component.name(), error],
            Self::Ready { component, value, about } => vec!["ready", component.name(), value, about],
        };
        let escaped: Vec<String> = fields.into_iter().map(escape).collect();
        escaped.join("\t")
    }

    /// Reads what [`to_line`](Self::to_line) wrote.
    ///
    /// # Errors
    /// When it did not write that line.
    pub fn from_line(line: &str) -> Result<Self> {
        let fields: Vec<String> = line.split('\t').map(unescape).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        Self::from_fields(&fields).with_context(|| format!("the program that holds the components said {line:?}"))
    }

    fn from_fields(fields: &[&str]) -> Option<Self> {
        Some(match *fields {
            ["note", text] => Self::Note(text.to_owned()),
            ["unavailable", reason] => Self::Unavailable(reason.to_owned()),
            ["failed", name, error] => Self::Failed { component: Component::named(name)?, error: error.to_owned() },
            ["ready", name, value, about] => {
                let component = Component::named(name)?;
                Self::Ready { component, value: value.to_owned(), about: about.to_owned() }
            }
            _ => return None,
        })
    }
}

fn escape(field: &str) -> String {
    field.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

fn unescape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut characters = field.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
                None => {}
            },
            (other, false) => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_is_one_line_and_is_read_as_written() {
        let error = "cannot \\n start:\n\tline\r\n".to_owned();
        for report in [
            Report::Note("pulling a:1".to_owned()),
            Report::Unavailable(error.clone()),
            Report::Failed { component: Component::Postgres, error },
            Report::Ready { component: Component::Kafka, value: "h:1".to_owned(), about: String::new() },
        ] {
            let line = report.to_line();
            assert!(!line.contains('\n') && !line.contains('\r'), "{line}");
            assert_eq!(Report::from_line(&line).unwrap(), report);
        }
    }

    #[test]
    fn a_foreign_line_is_refused_and_shown() {
        for line in ["", "ready\tKafka\tx", "ready\tRedis\tx\ty", "thread panicked"] {
            let error = Report::from_line(line).unwrap_err().to_string();
            assert!(error.contains(&format!("{line:?}")), "{error}");
        }
    }
}
