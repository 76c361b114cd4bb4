//! Forms of the page as requests to the process. Pure.

use ropeway_live::protocol::Request;

/// Most fields that a form may have.
const FIELDS_MAX: usize = 16;

/// A form that was sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// Its fields, without the two below.
    pub(crate) fields: Vec<(String, String)>,
    /// The number that only our pages know.
    pub(crate) form: String,
    /// Whether the user was asked.
    pub(crate) is_sure: bool,
}

impl Form {
    /// Parses a form as browsers send it.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let mut form = Self::default();
        for (name, value) in form_urlencoded::parse(body).take(FIELDS_MAX) {
            match &*name {
                "form" => form.form = value.into_owned(),
                "sure" => form.is_sure = value == "1",
                _ => form.fields.push((name.into_owned(), value.into_owned())),
            }
        }
        form
    }

    /// Returns a field; empty if there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        let mut named = self.fields.iter().filter(|(known, _)| known == name);
        named.next().map_or("", |(_, value)| value)
    }

    /// Returns the request that it stands for.
    ///
    /// # Errors
    /// It stands for none; the text says why.
    pub(crate) fn request(&self) -> Result<Request, String> {
        let job = match self.field("job") {
            "" => None,
            number => Some(
                number
                    .parse()
                    .map_err(|_| "the number of a job is a number".to_owned())?,
            ),
        };
        match self.field("do") {
            "pause" => Ok(Request::Pause { job }),
            "resume" => Ok(Request::Resume { job }),
            "bwlimit" => Ok(Request::Bwlimit {
                value: self.field("value").to_owned(),
                job,
            }),
            "cancel" => Ok(Request::Cancel),
            "close_session" => Ok(Request::CloseSession {
                id: self.field("id").to_owned(),
            }),
            _ => Err("there is no such thing to do".to_owned()),
        }
    }
}

/// Returns whether a user must be asked first.
pub(crate) fn needs_question(request: &Request) -> bool {
    matches!(request, Request::Cancel | Request::CloseSession { .. })
}

/// Returns what was done, in words.
pub(crate) fn done(request: &Request) -> String {
    match request {
        Request::Pause { .. } => "Paused: what is under way ends, and nothing new begins.".to_owned(),
        Request::Resume { .. } => "Resumed.".to_owned(),
        Request::Bwlimit { value, .. } => format!("The limit is now: {}.", value.trim()),
        Request::Cancel => "It was asked to stop; what is under way is finished first.".to_owned(),
        Request::CloseSession { .. } => "The session was ended.".to_owned(),
        Request::Status { .. } | Request::Watch { .. } => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn forms_become_requests() {
        let request = |body: &str| Form::parse(body.as_bytes()).request();
        assert_eq!(request("do=pause&job=3"), Ok(Request::Pause { job: Some(3) }));
        assert_eq!(request("do=resume"), Ok(Request::Resume { job: None }));
        let value = "08:00,1M".to_owned();
        assert_eq!(
            request("do=bwlimit&value=08%3A00%2C1M&job=1"),
            Ok(Request::Bwlimit { value, job: Some(1) })
        );
        assert_eq!(request("do=cancel&sure=1"), Ok(Request::Cancel));
        assert_eq!(
            request("do=close_session&id=1f"),
            Ok(Request::CloseSession { id: "1f".into() })
        );
        for bad in ["", "do=boil", "do=pause&job=x", "do=pause&job=-1"] {
            assert!(request(bad).is_err(), "{bad}");
        }
        let form = Form::parse(b"form=7&do=cancel&sure=1&ask=a+b");
        assert_eq!(
            (form.form.as_str(), form.is_sure, form.field("ask")),
            ("7", true, "a b")
        );
    }

    proptest! {
        #[test]
        fn any_form_is_parsed(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let form = Form::parse(&body);
            prop_assert!(form.fields.len() <= FIELDS_MAX);
            let _ = form.request();
        }
    }
}
