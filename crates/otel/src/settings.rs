//! The standard variables of OpenTelemetry, as far as they say whether and where to export. The others
//! (headers, compression, resource attributes, batches) are read by its own crates.
//!
//! Pure: variables come through a function.

use std::time::Duration;

/// Time that a collector has for an answer, without `OTEL_EXPORTER_OTLP_TIMEOUT` (as specified).
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two exports of metrics, without `OTEL_METRIC_EXPORT_INTERVAL`. (60 s are specified; the
/// figures of a copy are of interest sooner.)
const METRICS_EVERY: Duration = Duration::from_secs(10);
/// Longest wait for the collector at the end of the process. A guess: nobody notices it.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Whether, where and how to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// URL that takes spans.
    pub traces: Option<String>,
    /// URL that takes metrics.
    pub metrics: Option<String>,
    /// Name of the service.
    pub service_name: String,
    /// Time that the collector has for an answer.
    pub timeout: Duration,
    /// Time between two exports of metrics.
    pub metrics_every: Duration,
    /// Longest wait for the collector at the end.
    pub flush_max: Duration,
}

/// Reasons why the variables cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// The endpoint is no `http://` URL.
    NoPlainHttp(String),
    /// Another protocol than `http/protobuf` is asked for.
    Protocol(String),
}

impl std::error::Error for SettingsError {}

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoPlainHttp(url) => write!(f, "{url} is no http:// URL, and only plain HTTP is spoken"),
            Self::Protocol(name) => write!(f, "the protocol {name} is not spoken, only http/protobuf"),
        }
    }
}

impl Settings {
    /// Reads the variables; `None` if nothing is to be exported: no endpoint is set, or
    /// `OTEL_SDK_DISABLED` is `true`.
    ///
    /// # Errors
    /// An endpoint or protocol is set that cannot be used.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, SettingsError> {
        // An empty variable counts as unset (OpenTelemetry specification, "Environment variables").
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let base = set("OTEL_EXPORTER_OTLP_ENDPOINT");
        let url = |signal: &str, path: &str, exporter: &str| -> Result<Option<String>, SettingsError> {
            if set(exporter).is_some_and(|name| name.trim() == "none") {
                return Ok(None);
            }
            let own = set(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"));
            let below = |base: &String| format!("{}/v1/{path}", base.trim_end_matches('/'));
            match own.or_else(|| base.as_ref().map(below)) {
                Some(url) if !url.starts_with("http://") => Err(SettingsError::NoPlainHttp(url)),
                url => Ok(url),
            }
        };
        if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let traces = url("TRACES", "traces", "OTEL_TRACES_EXPORTER")?;
        let metrics = url("METRICS", "metrics", "OTEL_METRICS_EXPORTER")?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        match set("OTEL_EXPORTER_OTLP_PROTOCOL") {
            Some(name) if name != "http/protobuf" => return Err(SettingsError::Protocol(name)),
            _ => {}
        }
        let time = |name: &str, default: Duration| {
            let given = set(name).and_then(|value| value.trim().parse().ok());
            given.filter(|ms| *ms > 0).map_or(default, Duration::from_millis)
        };
        Ok(Some(Self {
            traces,
            metrics,
            service_name: set("OTEL_SERVICE_NAME").unwrap_or_else(|| "ropeway".to_owned()),
            timeout: time("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT),
            metrics_every: time("OTEL_METRIC_EXPORT_INTERVAL", METRICS_EVERY),
            flush_max: FLUSH_MAX,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        let found = |name: &str| variables.iter().find(|(one, _)| *one == name);
        Settings::read(|name| found(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn nothing_is_exported_without_an_endpoint() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("OTEL_SERVICE_NAME", "x")]), Ok(None));
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/");
        assert_eq!(read(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), Ok(None));
        let settings = read(&[endpoint]).unwrap().unwrap();
        assert_eq!(settings.traces.unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(settings.metrics.unwrap(), "http://127.0.0.1:4318/v1/metrics");
        assert_eq!(settings.service_name, "ropeway");
    }

    #[test]
    fn signals_may_have_endpoints_of_their_own() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://one/x"),
            ("OTEL_SERVICE_NAME", "nas"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(
            (settings.traces.as_deref(), settings.metrics),
            (Some("http://one/x"), None)
        );
        assert_eq!(
            (settings.service_name.as_str(), settings.timeout.as_millis()),
            ("nas", 250)
        );
    }

    #[test]
    fn what_cannot_be_spoken_is_refused() {
        let far = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://far:4318");
        assert!(matches!(read(&[far]), Err(SettingsError::NoPlainHttp(_))));
        let near = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://near:4317");
        let refused = read(&[near, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert!(refused.unwrap_err().to_string().contains("grpc"));
    }
}
