import type { Dashboard } from "@grafana/schema";

/** A type as JSON has it: an enumeration's values in place of its members. */
type Plain<T> = T extends string
  ? `${T}`
  : T extends (infer Item)[]
    ? Plain<Item>[]
    : T extends object
      ? { [Key in keyof T]: Plain<T[Key]> }
      : T;

/** What a dashboard's file must hold; tests/deploy has the compiler check it. */
export type DashboardFile = Plain<Dashboard>;
