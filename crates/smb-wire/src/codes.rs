//! Numeric codes of the wire as named constants.
//!
//! A peer may send a number this program does not know, so these newtypes keep every value. The code that reads a
//! field decides what an unknown number means. `Debug` prints the name of a known one. (Bit fields are made by the
//! crate `bitflags`; they keep unknown bits the same way: `const _ = !0` and `from_bits_retain`.)

/// Makes a newtype of named numbers, of which peers may send others:
/// `codes! { /// doc  pub struct Name(u16) { /// doc  CONST = 0x1; } }`.
macro_rules! codes {
    ($(#[$outer:meta])* $vis:vis struct $name:ident($int:ty) {
        $($(#[$inner:meta])* $code:ident = $value:expr;)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(unreachable_pub, reason = "some are private")]
        $vis struct $name(pub $int);

        #[allow(dead_code, unreachable_pub, reason = "every number is named, whether used or not")]
        impl $name {
            $($(#[$inner])* pub const $code: Self = Self($value);)*
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let known: &[(&str, $int)] = &[$((stringify!($code), $value)),*];
                match known.iter().find(|(_, value)| *value == self.0) {
                    Some((name, _)) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }
    };
}
pub(crate) use codes;

#[cfg(test)]
mod tests {
    codes! {
        /// Test.
        struct Number(u8) {
            /// 1.
            ONE = 1;
        }
    }

    #[test]
    fn unknown_numbers_are_kept_and_shown() {
        assert_eq!(format!("{:?} {:?}", Number::ONE, Number(32)), "ONE Number(0x20)");
    }
}
