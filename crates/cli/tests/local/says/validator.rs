//! The part of JSON Schema that `docs/output.schema.json` uses. A keyword that is not known here is an
//! error, so that nothing is passed over.

use serde_json::Value;

/// Says nothing about a value.
const SILENT: [&str; 5] = ["$schema", "$defs", "title", "description", "$comment"];

/// A schema.
pub(crate) struct Validator(pub(crate) Value);

impl Validator {
    /// Returns why a value does not fit; empty if it does.
    pub(crate) fn errors(&self, value: &Value) -> Vec<String> {
        self.check(&self.0, value, "")
    }

    fn check(&self, schema: &Value, value: &Value, place: &str) -> Vec<String> {
        let keywords = schema.as_object().unwrap();
        let mut errors = Vec::new();
        for (keyword, wanted) in keywords {
            if SILENT.contains(&keyword.as_str()) {
                continue;
            }
            errors.extend(self.keyword((keyword.as_str(), wanted), schema, value, place));
        }
        errors
    }

    fn keyword(
        &self,
        (keyword, wanted): (&str, &Value),
        schema: &Value,
        value: &Value,
        place: &str,
    ) -> Vec<String> {
        let wrong = |fits: bool| match fits {
            true => Vec::new(),
            false => vec![format!("{place}: {value} against {keyword} {wanted}")],
        };
        let length = value.as_array().map_or(0, Vec::len) as u64;
        match keyword {
            "$ref" => {
                let pointer = wanted.as_str().unwrap().trim_start_matches('#');
                self.check(self.0.pointer(pointer).unwrap(), value, place)
            }
            "const" => wrong(value == wanted),
            "enum" => wrong(wanted.as_array().unwrap().contains(value)),
            "type" => wrong(is_of(value, wanted.as_str().unwrap())),
            "minimum" => wrong(value.as_f64() >= wanted.as_f64()),
            "minItems" => wrong(length >= wanted.as_u64().unwrap()),
            "maxItems" => wrong(length <= wanted.as_u64().unwrap()),
            "anyOf" | "oneOf" => {
                let each = wanted.as_array().unwrap().iter();
                let all: Vec<Vec<String>> = each.map(|one| self.check(one, value, place)).collect();
                let fitting = all.iter().filter(|errors| errors.is_empty()).count();
                if fitting == 1 || (fitting > 1 && keyword == "anyOf") {
                    return Vec::new();
                }
                // The nearest one is the most useful.
                let nearest = all.into_iter().min_by_key(Vec::len).unwrap_or_default();
                vec![format!(
                    "{place}: {fitting} of {keyword} fit {value}; the nearest: {nearest:?}"
                )]
            }
            "required" => {
                let names = wanted.as_array().unwrap().iter().filter_map(Value::as_str);
                let missing: Vec<&str> = names.filter(|name| value.get(name).is_none()).collect();
                wrong(!value.is_object() || missing.is_empty())
            }
            "properties" => {
                let here = wanted.as_object().unwrap().iter();
                let here = here.filter_map(|(name, schema)| Some((name, schema, value.get(name)?)));
                here.flat_map(|(name, schema, value)| self.check(schema, value, &format!("{place}/{name}")))
                    .collect()
            }
            "additionalProperties" => {
                let known = schema.get("properties");
                let is_known = |name: &str| known.is_some_and(|known| known.get(name).is_some());
                let here = value.as_object().into_iter().flatten();
                let others = here.filter(|(name, _)| !is_known(name));
                let check = |(name, value): (&String, &Value)| match wanted {
                    Value::Bool(true) => Vec::new(),
                    Value::Bool(false) => vec![format!("{place}/{name}: not in the schema")],
                    schema => self.check(schema, value, &format!("{place}/{name}")),
                };
                others.flat_map(check).collect()
            }
            "items" => {
                let each = value.as_array().into_iter().flatten().enumerate();
                each.flat_map(|(index, value)| self.check(wanted, value, &format!("{place}/{index}")))
                    .collect()
            }
            unknown => panic!("the schema uses {unknown}"),
        }
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("the schema names the type {other}"),
    }
}

#[test]
fn what_does_not_fit_is_found() {
    let schema = serde_json::json!({
        "anyOf": [{"$ref": "#/$defs/a"}, {"type": "array", "items": {"type": "integer", "minimum": 0}}],
        "$defs": {"a": {
            "type": "object",
            "properties": {"type": {"const": "a"}, "of": {"enum": [1, 2]}},
            "required": ["type"],
            "additionalProperties": false,
        }},
    });
    let validator = Validator(schema);
    let fits = |text: &str| validator.errors(&serde_json::from_str(text).unwrap()).is_empty();
    for good in [r#"{"type": "a"}"#, r#"{"type": "a", "of": 2}"#, "[]", "[1, 2]"] {
        assert!(fits(good), "{good}");
    }
    for bad in [
        "{}",
        r#"{"type": "b"}"#,
        r#"{"type": "a", "of": 3}"#,
        r#"{"type": "a", "new": 1}"#,
        "[-1]",
        "[1.5]",
        "1",
    ] {
        assert!(!fits(bad), "{bad}");
    }
}
