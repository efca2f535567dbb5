//! Data structures that are serialized for the CLI.

/// A struct with only optional members and a setter for each; every row has the setter's kind, the name and
/// the type. In JSON the members have the CLI's camel-case names, and unset members are left out.
macro_rules! record {
    (
        $(#[$attr:meta])*
        pub struct $record:ident {
            $($(#[$doc:meta])* $kind:ident $name:ident: $type:ty;)*
        }
    ) => {
        $(#[$attr])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
        #[must_use]
        #[allow(clippy::struct_field_names, reason = "the CLI's own names")]
        pub struct $record {
            $(#[serde(skip_serializing_if = "Option::is_none")] pub(crate) $name: Option<$type>,)*
        }

        impl $record {
            $(record!(@$kind $(#[$doc])* $name: $type);)*
        }
    };

    (@value $(#[$doc:meta])* $name:ident: $type:ty) => {
        $(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = Some($name);
            self
        }
    };
    (@into $(#[$doc:meta])* $name:ident: $type:ty) => {
        $(#[$doc])*
        pub fn $name(mut self, $name: impl Into<$type>) -> Self {
            self.$name = Some($name.into());
            self
        }
    };
    (@list $(#[$doc:meta])* $name:ident: $type:ty) => {
        $(#[$doc])*
        pub fn $name<T: Into<String>>(mut self, $name: impl IntoIterator<Item = T>) -> Self {
            self.$name = Some($name.into_iter().map(Into::into).collect());
            self
        }
    };
}

/// Implements `Display` for types whose serialized form is a string.
macro_rules! display_as_serialized {
    ($($name:ty)*) => {
        $(impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        })*
    };
}

pub(crate) use {display_as_serialized, record};
