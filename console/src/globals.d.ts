/** The version of Telegrad that this page was built from. */
declare const __VERSION__: string;
