"""The dashboard: pages over what analytics and the ranker answer. No SQL here."""
