"""The report: one page, and the same in Markdown, made from the newest results in the store."""
