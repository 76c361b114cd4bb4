//! Bit fields and numbers of the wire as named constants.
//!
//! A peer may set bits or send numbers that nobody knows yet, so these types keep whatever they are given; what to do
//! with unknown ones is the reader's decision. Debug prints the names.

/// Makes a newtype of named bits: `flags! { /// doc  pub struct Name(u32) { /// doc  CONST = 0x1; } }`.
#[macro_export]
macro_rules! flags {
    ($(#[$outer:meta])* $vis:vis struct $name:ident($int:ty) {
        $($(#[$inner:meta])* $flag:ident = $value:expr;)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(unreachable_pub, reason = "some are private")]
        $vis struct $name(pub $int);

        #[allow(dead_code, unreachable_pub, reason = "the whole field is named, whether used or not")]
        impl $name {
            $($(#[$inner])* pub const $flag: Self = Self($value);)*

            /// From bits as they are on the wire; unknown ones are kept.
            pub const fn from_bits(bits: $int) -> Self {
                Self(bits)
            }

            /// The bits as they are on the wire.
            pub const fn bits(self) -> $int {
                self.0
            }

            /// Whether no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Whether all bits of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any bit of `other` is set.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// The bits of `self` that are not in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// The bits of both, for constants.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl std::ops::BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let known: &[(&str, $int)] = &[$((stringify!($flag), $value)),*];
                let mut unnamed = self.0;
                f.write_str(concat!(stringify!($name), "("))?;
                let mut between = "";
                for (name, bits) in known {
                    // A name whose bits have all been printed (a part of a bigger mask) is not printed again.
                    if *bits != 0 && self.0 & bits == *bits && unnamed & bits != 0 {
                        write!(f, "{between}{name}")?;
                        unnamed &= !bits;
                        between = " | ";
                    }
                }
                if unnamed != 0 || between.is_empty() {
                    write!(f, "{between}{unnamed:#x}")?;
                }
                f.write_str(")")
            }
        }
    };
}
pub(crate) use flags;

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
    flags! {
        /// Test.
        struct Letters(u16) {
            /// 1.
            A = 0x1;
            /// 2.
            B = 0x2;
            /// 3.
            BOTH = 0x3;
        }
    }

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

    #[test]
    fn unknown_bits_are_kept_and_shown() {
        let letters = Letters::from_bits(0x8001);
        assert_eq!(letters.bits(), 0x8001);
        assert_eq!(format!("{letters:?}"), "Letters(A | 0x8000)");
        assert_eq!(format!("{:?}", Letters::default()), "Letters(0x0)");
        assert_eq!(format!("{:?}", Letters::BOTH), "Letters(A | B)");
    }

    #[test]
    fn sets_compare() {
        let mut letters = Letters::A;
        assert!(!letters.contains(Letters::BOTH) && letters.intersects(Letters::BOTH));
        letters |= Letters::B;
        assert_eq!(letters, Letters::A | Letters::B);
        assert_eq!(letters & Letters::B, letters.without(Letters::A));
        assert_eq!(Letters::A.union(Letters::B), Letters::BOTH);
        assert!(Letters::default().is_empty());
    }
}
