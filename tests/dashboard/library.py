"""A small skill library for the dashboard's tests: what each skill does, and how users ask for it."""

from __future__ import annotations

from typing import NamedTuple


class LibrarySkill(NamedTuple):
    skill_id: str
    domain: str
    description: str
    queries: tuple[str, ...]


LIBRARY: tuple[LibrarySkill, ...] = (
    LibrarySkill(
        "calendar.create_event",
        "calendar",
        "Create a calendar event with a title, a start, a duration and guests. Use when someone wants to schedule"
        " something new; not for moving an existing event.",
        ("Put a design review on Thursday at 3 pm", "Schedule lunch with Mara next Tuesday", "安排周五上午的团队会议"),
    ),
    LibrarySkill(
        "calendar.move_event",
        "calendar",
        "Move an existing calendar event to another time and tell its guests. Not for new events.",
        ("Push my 2 pm to tomorrow morning", "Move the retro one hour later"),
    ),
    LibrarySkill(
        "calendar.find_free_slot",
        "calendar",
        "Find times when all named people are free, within working hours.",
        ("When can Ana and Joao both meet this week?", "Find an hour when the whole team is free"),
    ),
    LibrarySkill(
        "calendar.cancel_event",
        "calendar",
        "Cancel a calendar event and notify its guests.",
        ("Cancel the sync with the vendor", "Drop tomorrow's standup"),
    ),
    LibrarySkill(
        "calendar.sync_shared",
        "calendar",
        "Synchronise a shared team calendar from its external provider.",
        ("Refresh the shared holidays calendar", "Why is the team calendar out of date? Sync it"),
    ),
    LibrarySkill(
        "mail.search_threads",
        "mail",
        "Search e-mail threads by sender, subject, text or date.",
        ("Find the message from Lena about the invoice", "Which mails mention the Porto offsite?"),
    ),
    LibrarySkill(
        "mail.send_message",
        "mail",
        "Send a new e-mail to one or more people. Not for answering a thread.",
        ("Write to legal that the contract is signed", "E-mail the minutes to everyone who attended"),
    ),
    LibrarySkill(
        "mail.reply_thread",
        "mail",
        "Reply within an existing e-mail thread.",
        ("Answer Tom that Friday works", "Reply to the recruiter and decline"),
    ),
    LibrarySkill(
        "mail.summarize_inbox",
        "mail",
        "Summarise unread e-mail into a few lines a thread.",
        ("What did I miss in my inbox since Monday?", "Give me the gist of today's unread mail"),
    ),
    LibrarySkill(
        "mail.label_thread",
        "mail",
        "Put a label on an e-mail thread.",
        ("Mark all receipts as Finance", "Tag this conversation as urgent"),
    ),
    LibrarySkill(
        "docs.search",
        "documents",
        "Full-text search over the team's documents.",
        ("Where is the onboarding checklist?", "Find our policy on remote work"),
    ),
    LibrarySkill(
        "docs.read",
        "documents",
        "Read the text of one document by its id.",
        ("Open the Q3 roadmap and read it to me", "What does section 4 of the style guide say?"),
    ),
    LibrarySkill(
        "docs.create",
        "documents",
        "Create a new document from a title and text.",
        ("Start a doc for the launch plan", "Write up these notes as a new page"),
    ),
    LibrarySkill(
        "docs.share",
        "documents",
        "Share a document with people or groups, for reading or editing.",
        ("Give Priya edit access to the budget sheet", "Share the spec with the mobile team"),
    ),
    LibrarySkill(
        "docs.translate",
        "documents",
        "Translate a document into another language, keeping its layout.",
        ("Translate the press release into Japanese", "把这份说明书翻译成英文"),
    ),
    LibrarySkill(
        "billing.get_invoice",
        "billing",
        "Fetch an invoice by number or customer and month.",
        ("Show me invoice 2026-0312", "Get Acme's March invoice"),
    ),
    LibrarySkill(
        "billing.list_overdue",
        "billing",
        "List invoices that are past their due date, with the amount and the days overdue.",
        ("Who hasn't paid us yet?", "Which invoices are more than 30 days late?"),
    ),
    LibrarySkill(
        "billing.refund_full",
        "billing",
        "Refund a payment in full.",
        ("Give Mr Okafor all his money back", "Refund order 88121 completely"),
    ),
    LibrarySkill(
        "billing.refund_partial",
        "billing",
        "Refund part of a payment.",
        ("Refund 20 euros of order 88034", "Give back the shipping cost only"),
    ),
    LibrarySkill(
        "billing.update_card",
        "billing",
        "Send a customer a link to update their card.",
        ("Ask Globex for a new credit card", "The card of customer 4411 expired, have it replaced"),
    ),
    LibrarySkill(
        "travel.search_flights",
        "travel",
        "Search flights between two cities on a date.",
        ("Flights from Lisbon to Oslo on the 14th", "Cheapest way to fly to Madrid this Friday"),
    ),
    LibrarySkill(
        "travel.book_flight",
        "travel",
        "Book a flight that was found by a search.",
        ("Book the 9:40 to Oslo", "Take the second option and buy it"),
    ),
    LibrarySkill(
        "travel.search_hotels",
        "travel",
        "Search hotels in a city for a date range and a budget.",
        ("A quiet hotel in Porto under 120 a night", "Where can I stay near the fairground in Milan?"),
    ),
    LibrarySkill(
        "travel.visa_rules",
        "travel",
        "Tell whether a passport needs a visa for a country.",
        ("Do I need a visa for Vietnam with an Irish passport?", "去日本需要签证吗?"),
    ),
    LibrarySkill(
        "travel.expense_report",
        "travel",
        "Turn the receipts of a trip into an expense report.",
        ("File my Berlin trip", "Make the expenses of last week's travel"),
    ),
    LibrarySkill(
        "code.search_symbols",
        "code",
        "Search functions and classes by name across repositories.",
        ("Where is parse_window defined?", "Find all callers of retry_with_backoff"),
    ),
    LibrarySkill(
        "code.run_tests",
        "code",
        "Run the test suite of a branch and report the failures.",
        ("Run the tests on the hotfix branch", "Is main green?"),
    ),
    LibrarySkill(
        "code.open_pull_request",
        "code",
        "Open a pull request from a branch with a title and a summary.",
        ("Open a PR for my branch", "Propose these changes for review"),
    ),
    LibrarySkill(
        "code.review_diff",
        "code",
        "Review a diff and comment on bugs and style.",
        ("Look over PR 412 before I merge", "Review the latest commit for mistakes"),
    ),
    LibrarySkill(
        "code.deploy_preview",
        "code",
        "Deploy a branch to a preview environment.",
        ("Put the branch on a preview URL", "Deploy this so the designer can see it"),
    ),
)
