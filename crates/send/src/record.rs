//! What is sent of incidents and findings: records of a log.

use std::fmt;

/// Records of one request.
pub const RECORDS_MAX: usize = 100;

/// How bad it is, as OpenTelemetry counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nobody suffers from it yet.
    Info,
    /// Somebody did.
    Warn,
}

impl Severity {
    /// `SeverityNumber` of the protocol.
    pub(crate) fn number(self) -> i32 {
        match self {
            Severity::Info => 9,
            Severity::Warn => 13,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Severity::Info => "INFO",
            Severity::Warn => "WARN",
        }
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// A name, or a time as RFC 3339.
    Text(String),
    /// Yes or no.
    Bool(bool),
    /// A measurement, which is not `NaN`.
    Number(f64),
}

/// An incident or a finding.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// When it happened, in nanoseconds since 1970; negative if that is not known.
    pub time_ns: i64,
    /// How far the recording went when it was explained.
    pub observed_ns: i64,
    /// How bad it is.
    pub severity: Severity,
    /// What kind of record it is: `mitra.incident`.
    pub event: &'static str,
    /// The verdict in one line.
    pub body: String,
    /// The machine's name.
    pub host: String,
    /// Names and values.
    pub attributes: Vec<(String, AttributeValue)>,
}

/// One line, for people to read.
impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.severity.name(), self.event, self.body)?;
        for (name, value) in &self.attributes {
            match value {
                AttributeValue::Text(text) => write!(f, " {name}={text:?}")?,
                AttributeValue::Bool(value) => write!(f, " {name}={value}")?,
                AttributeValue::Number(value) => write!(f, " {name}={value}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An incident of a host.
    pub fn record(body: &str) -> LogRecord {
        let attributes = [
            ("mitra.root", AttributeValue::Text("disk-hog".to_owned())),
            ("mitra.unexplained", AttributeValue::Bool(false)),
            ("mitra.strength", AttributeValue::Number(0.5)),
        ];
        LogRecord {
            time_ns: 7,
            observed_ns: 9,
            severity: Severity::Warn,
            event: "mitra.incident",
            body: body.to_owned(),
            host: "web1".to_owned(),
            attributes: attributes.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        }
    }

    #[test]
    fn a_record_is_one_line() {
        assert_eq!(
            record("dd wrote").to_string(),
            "WARN mitra.incident dd wrote mitra.root=\"disk-hog\" mitra.unexplained=false mitra.strength=0.5"
        );
    }
}
